// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// TestMachine checks rule 8: MachineSet spec.template → Machine.
func TestMachine(t *testing.T) {
	const always, initialize = "taints.heirloom.dev/always=", "taints.heirloom.dev/initialize="
	const unknown, enabled, disabled = inherit.PropagationUnknown, inherit.PropagationEnabled, inherit.PropagationDisabled
	for _, tc := range []struct {
		name         string
		taints       inherit.TaintPropagation
		template     content
		selects      string
		machine      content
		controlPlane bool
		orphan       bool
		want         content
		problem      string
	}{
		{name: "labels and annotations reach the Machine", template: content{labels: "team=a", annotations: "note=x"}, want: content{labels: "team=a", annotations: "note=x"}},
		{name: "a label that the MachineSet selects by is not touched", template: content{labels: "team=a,pool=x"}, selects: "pool=x", want: content{labels: "team=a"}},
		{name: "typed taints reach the Machine", template: content{taints: "gpu=true:NoSchedule,b:NoExecute@OnInitialization"}, want: content{taints: "gpu=true:NoSchedule,b:NoExecute@OnInitialization"}},
		{name: "typed taints stay where Cluster API would refuse them", taints: disabled, template: content{taints: "gpu:NoSchedule"}},
		{name: "a Machine without an owner inherits nothing", orphan: true, machine: content{labels: "mine=1", taints: "x:NoSchedule"}},

		{name: "annotated taints stay annotations where Cluster API would refuse typed ones", taints: disabled, template: content{annotations: always + "gpu:NoSchedule"}, want: content{annotations: always + "gpu:NoSchedule"}},
		{name: "annotated taints become typed too where Cluster API accepts them", taints: enabled, template: content{annotations: always + "gpu=1:NoSchedule; " + initialize + "b:NoExecute"}, want: content{annotations: always + "gpu=1:NoSchedule; " + initialize + "b:NoExecute", taints: "b:NoExecute@OnInitialization,gpu=1:NoSchedule"}},
		{name: "the template's annotation counts, not the one it replaces", taints: enabled, template: content{annotations: always + "new:NoSchedule"}, machine: content{annotations: always + "old:NoSchedule"}, want: content{annotations: always + "new:NoSchedule", taints: "new:NoSchedule"}},
		{name: "a typo loses that entry only, and says so", taints: enabled, machine: content{annotations: always + "typo,gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule"}, problem: `"typo" lacks an effect`},

		{name: "a reserved taint is left out, and said so", template: content{taints: "node.kubernetes.io/x:NoSchedule,gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule"}, problem: "node.kubernetes.io/x:NoSchedule"},
		{name: "the control plane's taint is left out for a worker", template: content{taints: "node-role.kubernetes.io/control-plane:NoSchedule"}, problem: "reserved for control plane Machines"},
		{name: "the control plane's taint is for the control plane", taints: enabled, orphan: true, controlPlane: true, machine: content{annotations: always + "node-role.kubernetes.io/control-plane:NoSchedule"}, want: content{taints: "node-role.kubernetes.io/control-plane:NoSchedule"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			ms := &clusterv1.MachineSet{Spec: clusterv1.MachineSetSpec{Selector: selector(tc.selects, ""), Template: tc.template.template()}}
			if tc.orphan {
				ms = nil
			}
			m := tc.machine.machine()
			if tc.controlPlane {
				m = tc.machine.controller()
			}
			got, err := withProblems(inherit.Policy{ClusterAPITaints: tc.taints}.MachineFrom(inherit.TemplateOfMachineSet(ms), m))

			expectProblem(t, err, tc.problem)
			Expect(describeContent(&got.Top)).To(Equal(tc.want.want()))
			Expect(got.Template).To(BeNil())
		})
	}
}

// docs/design.md §3: on the same key and effect the typed field wins. Here somebody set the Machine's own typed field, so the desired
// annotated taint is a Default; package managedfields keeps the child's own taint.
func TestAMachinesOwnTypedTaintWinsOverItsAnnotation(t *testing.T) {
	m := content{taints: "gpu=typed:NoSchedule", annotations: "taints.heirloom.dev/always=gpu=annotated:NoSchedule"}.machine()
	got := whole(inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}.MachineFrom(nil, m))
	NewWithT(t).Expect(got.Top.Taints).To(HaveLen(1))
	NewWithT(t).Expect(got.Top.Claims).To(Equal(map[string]inherit.Claim{"gpu:NoSchedule": inherit.Default}))
}

// Cluster API propagates typed taints to all Nodes at once. So where evictions are paced, taints that evict become typed only in
// Machines without a Node; taints that Cluster API has already propagated stay typed.
func TestEvictingTaintsBecomeTypedInNewMachinesOnly(t *testing.T) {
	const always, initialize = "taints.heirloom.dev/always=", "taints.heirloom.dev/initialize="
	for _, tc := range []struct {
		name                 string
		nodeRef, providerID  string
		annotations, typed   string
		unpaced, gateUnknown bool
		want                 string
	}{
		{name: "a new Machine", annotations: always + "a:NoExecute,b:NoSchedule;" + initialize + "c:NoExecute", want: "a:NoExecute,b:NoSchedule,c:NoExecute@OnInitialization"},
		{name: "a Machine with a Node", nodeRef: "n", annotations: always + "a:NoExecute,b:NoSchedule;" + initialize + "c:NoExecute", want: "b:NoSchedule"},
		{name: "one whose Node is not known again yet", providerID: "p", annotations: always + "a:NoExecute,b:NoSchedule", want: "b:NoSchedule"},
		{name: "what is typed already stays", nodeRef: "n", annotations: always + "a:NoExecute", typed: "a:NoExecute", want: "a:NoExecute"},
		{name: "and follows its declaration", nodeRef: "n", annotations: always + "a=new:NoExecute", typed: "a=old:NoExecute", want: "a=new:NoExecute"},
		{name: "and may become Initialize, which evicts nobody", nodeRef: "n", annotations: initialize + "a:NoExecute", typed: "a:NoExecute", want: "a:NoExecute@OnInitialization"},
		{name: "but not Always, which the Node may not have", nodeRef: "n", annotations: always + "a:NoExecute", typed: "a:NoExecute@OnInitialization"},
		{name: "without a pace all become typed", nodeRef: "n", unpaced: true, annotations: always + "a:NoExecute", want: "a:NoExecute"},
		{name: "while the gate is not known, what is typed stays", nodeRef: "n", gateUnknown: true, annotations: always + "a:NoExecute,b:NoExecute", typed: "a:NoExecute", want: "a:NoExecute"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			policy := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled, PaceEviction: !tc.unpaced}
			if tc.gateUnknown {
				policy.ClusterAPITaints = inherit.PropagationUnknown
			}
			m := content{annotations: tc.annotations, taints: tc.typed}.machine()
			m.Status.NodeRef.Name, m.Spec.ProviderID = tc.nodeRef, tc.providerID
			got := whole(policy.MachineFrom(nil, m))
			NewWithT(t).Expect(describeContent(&got.Top)).To(Equal(content{taints: tc.want}.want()))
		})
	}
}

// TestMachineSet checks rule 5, MachineDeployment metadata → MachineSet metadata (annotations only), and rule 6, MachineDeployment
// spec.template → MachineSet metadata (labels only) and spec.template.
func TestMachineSet(t *testing.T) {
	for _, tc := range []struct {
		name               string
		policy             inherit.Policy
		deployment         content
		template           content
		mdSelects          string
		msSelects          string
		wantTop, wantBelow content
	}{
		{name: "labels reach the metadata and the template", template: content{labels: "team=a,tier=1"}, wantTop: content{labels: "team=a,tier=1"}, wantBelow: content{labels: "team=a,tier=1"}},
		{name: "annotations reach the template only", template: content{annotations: "note=x"}, wantBelow: content{annotations: "note=x"}},
		{name: "taints reach the template only", template: content{taints: "gpu=true:NoSchedule,b:NoExecute@OnInitialization"}, wantBelow: content{taints: "gpu=true:NoSchedule,b:NoExecute@OnInitialization"}},
		{name: "the MachineDeployment's own labels go nowhere", deployment: content{labels: "team=a"}},
		{name: "its own annotations reach the metadata only", deployment: content{annotations: "note=x"}, wantTop: content{annotations: "note=x"}},
		{name: "bookkeeping of its own goes nowhere", deployment: content{annotations: "cluster.x-k8s.io/paused-by=me; topology.cluster.x-k8s.io/a=; heirloom.dev/b=; taints.heirloom.dev/always=gpu:NoSchedule"}},

		{name: "a label that the MachineDeployment selects by is not touched", template: content{labels: "app=x,team=a"}, mdSelects: "app=x", wantTop: content{labels: "team=a"}, wantBelow: content{labels: "team=a"}},
		{name: "a label that the MachineSet selects by is not touched", template: content{labels: "app=x,team=a"}, msSelects: "app=old", wantTop: content{labels: "team=a"}, wantBelow: content{labels: "team=a"}},

		{name: "typed taints stay where Cluster API would refuse them", policy: inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled}, template: content{taints: "gpu:NoSchedule", labels: "team=a"}, wantTop: content{labels: "team=a"}, wantBelow: content{labels: "team=a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			md := &clusterv1.MachineDeployment{
				ObjectMeta: metav1.ObjectMeta{Labels: labels(tc.deployment.labels), Annotations: annotations(tc.deployment.annotations)},
				Spec:       clusterv1.MachineDeploymentSpec{Selector: selector(tc.mdSelects, ""), Template: tc.template.template()},
			}
			ms := &clusterv1.MachineSet{Spec: clusterv1.MachineSetSpec{Selector: selector(tc.msSelects, "")}}
			got := whole(tc.policy.MachineSet(md, ms))
			Expect(describeContent(&got.Top)).To(Equal(tc.wantTop.want()))
			Expect(describeContent(got.Template)).To(Equal(tc.wantBelow.want()))
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

// neverInherited lists keys that no step propagates, for every declaring object.
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

			set := whole(inherit.Policy{}.MachineSet(md, &clusterv1.MachineSet{}))
			Expect(describeContent(&set.Top)).To(Equal(content{labels: "ok=1", annotations: "ok=1"}.want()), "rules 5 and 6, metadata")
			Expect(describeContent(set.Template)).To(Equal(content{labels: "ok=1", annotations: "ok=1"}.want()), "rule 6, template")

			m := whole(inherit.Policy{}.MachineFrom(inherit.TemplateOfMachineSet(ms), &clusterv1.Machine{}))
			Expect(describeContent(&m.Top)).To(Equal(content{labels: "ok=1", annotations: "ok=1"}.want()), "rule 8")
			external, _ := inherit.Policy{}.External(inherit.TemplateOfMachineSet(ms), inherit.Object{})
			Expect(describeContent(&external.Top)).To(Equal(describeContent(&m.Top)), "rule 8, of external objects")

			everything := inherit.Policy{AdditionalLabels: regexes(".*"), AdditionalAnnotations: regexes(".*")}
			node := whole(planned(everything, inherit.SourceOfMachine(both.machine()), content{}.initialized(), privileged))
			Expect(unrecorded(node).Labels).To(Equal(labels("ok=1")), "rule 11")
			Expect(node.Annotations).NotTo(HaveKey(key), "rule 12")
			Expect(node.Annotations).To(HaveKeyWithValue("ok", "1"), "rule 12")
		})
	}
}

// controlPlane declares metadata and taints by the v1beta2 contract, and the older taints by the v1beta1 contract.
func controlPlane(metadata content, taints, older string) *inherit.ControlPlane {
	machines := &inherit.ControlPlaneMachineTemplate{}
	cp := &inherit.ControlPlane{Spec: inherit.ControlPlaneSpec{MachineTemplate: machines}}
	machines.ObjectMeta = metadata.template().ObjectMeta
	machines.Spec.Taints, machines.Taints = declared(taints), declared(older)
	return cp
}

// TestControlPlane checks rule 4: ControlPlane spec.machineTemplate → Machine.
func TestControlPlane(t *testing.T) {
	const role = "node-role.kubernetes.io/control-plane:NoSchedule"
	for _, tc := range []struct {
		name  string
		owner *inherit.ControlPlane
		want  content
	}{
		{name: "labels and annotations reach the Machine", owner: controlPlane(content{labels: "team=a", annotations: "note=x"}, "", ""), want: content{labels: "team=a", annotations: "note=x"}},
		{name: "taints of the v1beta2 contract reach the Machine", owner: controlPlane(content{}, role, ""), want: content{taints: role}},
		{name: "where an object has both, the newer contract counts", owner: controlPlane(content{}, "new:NoSchedule", "old:NoSchedule"), want: content{taints: "new:NoSchedule"}},
		{
			// A control plane selects its Machines by these labels, and sets them itself, regardless of the template.
			name:  "labels that say whose Machine it is are not touched",
			owner: controlPlane(content{labels: "cluster.x-k8s.io/cluster-name=other,cluster.x-k8s.io/control-plane=x,cluster.x-k8s.io/control-plane-name=other,team=a"}, "", ""),
			want:  content{labels: "team=a"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			got := whole(inherit.Policy{}.MachineFrom(inherit.TemplateOfControlPlane(tc.owner), content{}.controller()))
			Expect(describeContent(&got.Top)).To(Equal(tc.want.want()))
		})
	}
}

// TestMachinePool checks rule 9: MachinePool spec.template → its Machines, or the Nodes themselves.
func TestMachinePool(t *testing.T) {
	Expect := NewWithT(t).Expect
	declares := content{labels: "node.cluster.x-k8s.io/a=1,helm.sh/chart=x", annotations: "taints.heirloom.dev/always=gpu:NoSchedule; node.cluster.x-k8s.io/b=2", taints: "typed:NoSchedule"}
	mp := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Name: "mp", Namespace: "ns", Labels: labels("node.cluster.x-k8s.io/own=1")}}
	mp.Spec.ClusterName, mp.Spec.Template = "c", declares.template()
	before := mp.DeepCopy()

	m := whole(inherit.Policy{}.MachineFrom(inherit.TemplateOfMachinePool(mp), content{}.machine()))
	Expect(describeContent(&m.Top)).To(Equal(content{labels: "node.cluster.x-k8s.io/a=1", annotations: declares.annotations, taints: "typed:NoSchedule"}.want()))

	node := whole(planned(inherit.Policy{}, inherit.Policy{}.SourceForPool(mp, inherit.TemplateOfMachinePool(mp)), content{}.node(), privileged))
	Expect(describe(node)).To(Equal(describe(content{
		labels:      "node.cluster.x-k8s.io/a=1",
		annotations: "node.cluster.x-k8s.io/b=2; capi/labels=node.cluster.x-k8s.io/a; capi/annotations=node.cluster.x-k8s.io/b; capi/taints=typed:NoSchedule; own/taints=gpu:NoSchedule",
		taints:      "gpu:NoSchedule,typed:NoSchedule",
	}.node())))
	Expect(mp).To(Equal(before), "the input is not mutated")
}

// TestExternal checks rules 4 and 8 for InfraMachine and BootstrapConfig: template → metadata.
func TestExternal(t *testing.T) {
	for _, tc := range []struct {
		name     string
		template content
		selects  string
		want     content
	}{
		{name: "labels and annotations are inherited", template: content{labels: "team=a", annotations: "note=x"}, want: content{labels: "team=a", annotations: "note=x"}},
		{name: "taints and fields are the Machine's", template: content{labels: "team=a", taints: "gpu:NoSchedule,node.kubernetes.io/x:NoSchedule"}, want: content{labels: "team=a"}},
		{name: "a label that the owner selects by is not touched", template: content{labels: "app=x,team=a"}, selects: "app=x", want: content{labels: "team=a"}},
		{name: "labels that say whose it is are not touched", template: content{labels: "team=a,cluster.x-k8s.io/cluster-name=x,cluster.x-k8s.io/set-name=x,cluster.x-k8s.io/deployment-name=x,cluster.x-k8s.io/control-plane=x,cluster.x-k8s.io/control-plane-name=x"}, want: content{labels: "team=a"}},
		{name: "bookkeeping that somebody put into the template is inherited", template: content{labels: "topology.cluster.x-k8s.io/owned=", annotations: "cluster.x-k8s.io/mine=1"}, want: content{labels: "topology.cluster.x-k8s.io/owned=", annotations: "cluster.x-k8s.io/mine=1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			ms := &clusterv1.MachineSet{Spec: clusterv1.MachineSetSpec{Selector: selector(tc.selects, ""), Template: tc.template.template()}}
			ms.Spec.Template.Spec.MinReadySeconds = new(int32(5))
			got, _ := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}.External(inherit.TemplateOfMachineSet(ms), inherit.Object{})

			Expect(describeContent(&got.Top)).To(Equal(tc.want.want()))
			Expect(got.Top.Fields).To(Equal(inherit.Fields{}))
			Expect(got.Template).To(BeNil())
		})
	}
}

func TestOfExternal(t *testing.T) {
	Expect := NewWithT(t).Expect
	got := inherit.OfExternal(&metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "infrastructure.cluster.x-k8s.io/v1alpha7", Kind: "AcmeMachine"},
		ObjectMeta: metav1.ObjectMeta{Labels: labels("team=a"), Annotations: annotations("note=x")},
	})
	Expect(got).To(Equal(inherit.Object{
		Layout: inherit.Layout{Version: "v1alpha7", Top: inherit.Paths{Metadata: []string{"metadata"}}}, Top: inherit.Content{Labels: labels("team=a"), Annotations: annotations("note=x")},
	}))
}

func TestIsTemplate(t *testing.T) {
	for kind, want := range map[string]bool{
		"AcmeMachineTemplate": true, "KubeadmConfigTemplate": true, "AcmeMachine": false, "KubeadmConfig": false, "AcmeTemplateMachine": false, "": false,
	} {
		NewWithT(t).Expect(inherit.IsTemplate(kind)).To(Equal(want), kind)
	}
}
