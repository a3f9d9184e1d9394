// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// TestMachineSet is rule 5, MachineDeployment metadata → MachineSet metadata (annotations only), and rule 6,
// MachineDeployment spec.template → MachineSet metadata (labels only) and spec.template.
func TestMachineSet(t *testing.T) {
	for _, tc := range []struct {
		name               string
		policy             inherit.Policy
		deployment         content
		template           content
		mdSelects          string
		msSelects          string
		msExpresses        string
		wantTop, wantBelow content
	}{
		{name: "an empty template brings nothing"},
		{name: "labels reach the metadata and the template", template: content{labels: "team=a,tier=1"}, wantTop: content{labels: "team=a,tier=1"}, wantBelow: content{labels: "team=a,tier=1"}},
		{name: "annotations reach the template only", template: content{annotations: "note=x"}, wantBelow: content{annotations: "note=x"}},
		{name: "taints reach the template only", template: content{taints: "gpu=true:NoSchedule,b:NoExecute@OnInitialization"}, wantBelow: content{taints: "gpu=true:NoSchedule,b:NoExecute@OnInitialization"}},
		{name: "annotated taints flow like any annotation", template: content{annotations: "taints.heirloom.dev/always=gpu:NoSchedule"}, wantBelow: content{annotations: "taints.heirloom.dev/always=gpu:NoSchedule"}},
		{name: "the MachineDeployment's own labels go nowhere", deployment: content{labels: "team=a"}},
		{name: "its own annotations reach the metadata only", deployment: content{annotations: "note=x"}, wantTop: content{annotations: "note=x"}},
		{name: "bookkeeping of its own goes nowhere", deployment: content{annotations: "cluster.x-k8s.io/paused-by=me; topology.cluster.x-k8s.io/a=; heirloom.dev/b=; taints.heirloom.dev/always=gpu:NoSchedule"}},
		{name: "a bookkeeping key that somebody put into the template is inherited", template: content{labels: "cluster.x-k8s.io/mine=1", annotations: "topology.cluster.x-k8s.io/mine=2"}, wantTop: content{labels: "cluster.x-k8s.io/mine=1"}, wantBelow: content{labels: "cluster.x-k8s.io/mine=1", annotations: "topology.cluster.x-k8s.io/mine=2"}},

		{name: "a label that the MachineDeployment selects by is not touched", template: content{labels: "app=x,team=a"}, mdSelects: "app=x", wantTop: content{labels: "team=a"}, wantBelow: content{labels: "team=a"}},
		{name: "a label that the MachineSet selects by is not touched", template: content{labels: "app=x,team=a"}, msSelects: "app=old", wantTop: content{labels: "team=a"}, wantBelow: content{labels: "team=a"}},
		{name: "a label of a selector's expression is not touched", template: content{labels: "app=x,team=a"}, msExpresses: "app", wantTop: content{labels: "team=a"}, wantBelow: content{labels: "team=a"}},
		{name: "an annotation of that name is no label", template: content{annotations: "app=x"}, mdSelects: "app=x", wantBelow: content{annotations: "app=x"}},

		{name: "typed taints flow where Cluster API accepts them", policy: inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}, template: content{taints: "gpu:NoSchedule"}, wantBelow: content{taints: "gpu:NoSchedule"}},
		{name: "typed taints stay where Cluster API would refuse them", policy: inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled}, template: content{taints: "gpu:NoSchedule", labels: "team=a"}, wantTop: content{labels: "team=a"}, wantBelow: content{labels: "team=a"}},
		{name: "annotated taints flow there all the same", policy: inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled}, template: content{annotations: "taints.heirloom.dev/initialize=gpu:NoSchedule"}, wantBelow: content{annotations: "taints.heirloom.dev/initialize=gpu:NoSchedule"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			md := &clusterv1.MachineDeployment{
				ObjectMeta: metav1.ObjectMeta{Labels: labels(tc.deployment.labels), Annotations: annotations(tc.deployment.annotations)},
				Spec:       clusterv1.MachineDeploymentSpec{Selector: selector(tc.mdSelects, ""), Template: tc.template.template()},
			}
			ms := &clusterv1.MachineSet{Spec: clusterv1.MachineSetSpec{Selector: selector(tc.msSelects, tc.msExpresses)}}
			mdBefore, msBefore := md.DeepCopy(), ms.DeepCopy()

			got, err := withProblems(tc.policy.MachineSet(md, ms))

			Expect(err).NotTo(HaveOccurred())
			Expect(describeContent(&got.Top)).To(Equal(tc.wantTop.want()))
			Expect(describeContent(got.Template)).To(Equal(tc.wantBelow.want()))
			Expect(md).To(Equal(mdBefore), "the input is not mutated")
			Expect(ms).To(Equal(msBefore), "the input is not mutated")
		})
	}
}

func selector(matches, expresses string) metav1.LabelSelector {
	s := metav1.LabelSelector{MatchLabels: labels(matches)}
	if expresses != "" {
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: expresses, Operator: metav1.LabelSelectorOpExists}}
	}
	return s
}

// Keys that no step hands down, no matter who declares them.
var neverInherited = []string{
	"kubectl.kubernetes.io/last-applied-configuration",
	"kubectl.kubernetes.io/restartedAt",
	"cluster.x-k8s.io/conversion-data",
	"machinedeployment.clusters.x-k8s.io/revision",
	"machinedeployment.clusters.x-k8s.io/revision-history",
	"machinedeployment.clusters.x-k8s.io/desired-replicas",
	"machinedeployment.clusters.x-k8s.io/max-replicas",
	"argocd.argoproj.io/tracking-id",
	"argocd.argoproj.io/instance",
	"kustomize.toolkit.fluxcd.io/name",
	"helm.toolkit.fluxcd.io/namespace",
	"meta.helm.sh/release-name",
	"helm.sh/chart",
	"app.kubernetes.io/managed-by",
	"cluster.x-k8s.io/paused",
	"heirloom.dev/ignore",
}

func TestNeverInherited(t *testing.T) {
	for _, key := range neverInherited {
		t.Run(key, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			both := content{labels: key + "=x,ok=1", annotations: key + "=x; ok=1"}
			md := &clusterv1.MachineDeployment{Spec: clusterv1.MachineDeploymentSpec{Template: both.template()}}
			md.Annotations = annotations(key + "=x; ok=1")
			ms := &clusterv1.MachineSet{Spec: clusterv1.MachineSetSpec{Template: both.template()}}

			set, err := withProblems(inherit.Policy{}.MachineSet(md, &clusterv1.MachineSet{}))
			Expect(err).NotTo(HaveOccurred())
			Expect(describeContent(&set.Top)).To(Equal(content{labels: "ok=1", annotations: "ok=1"}.want()), "rules 5 and 6, metadata")
			Expect(describeContent(set.Template)).To(Equal(content{labels: "ok=1", annotations: "ok=1"}.want()), "rule 6, template")

			m, err := withProblems(inherit.Policy{}.MachineFrom(inherit.TemplateOfMachineSet(ms), &clusterv1.Machine{}))
			Expect(err).NotTo(HaveOccurred())
			Expect(describeContent(&m.Top)).To(Equal(content{labels: "ok=1", annotations: "ok=1"}.want()), "rule 8")

			everything := inherit.Policy{AdditionalLabels: regexes(".*"), AdditionalAnnotations: regexes(".*")}
			node, err := withProblems(everything.Node(inherit.SourceOfMachine(both.machine()), content{}.initialized(), inherit.Privileged))
			Expect(err).NotTo(HaveOccurred())
			Expect(unrecorded(node).Labels).To(Equal(labels("ok=1")), "rule 11")
			Expect(node.Annotations).NotTo(HaveKey(key), "rule 12")
			Expect(node.Annotations).To(HaveKeyWithValue("ok", "1"), "rule 12")
		})
	}
}
