// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// TestExternal is rules 4 and 8 for InfraMachine and BootstrapConfig: template → metadata.
func TestExternal(t *testing.T) {
	for _, tc := range []struct {
		name      string
		template  content
		selects   string
		expresses string
		want      content
	}{
		{name: "an empty template brings nothing"},
		{name: "labels and annotations are inherited", template: content{labels: "team=a", annotations: "note=x"}, want: content{labels: "team=a", annotations: "note=x"}},
		{name: "taints and fields are the Machine's", template: content{labels: "team=a", taints: "gpu:NoSchedule,node.kubernetes.io/x:NoSchedule"}, want: content{labels: "team=a"}},
		{name: "annotated taints are annotations like others", template: content{annotations: "taints.heirloom.dev/always=gpu:NoSchedule"}, want: content{annotations: "taints.heirloom.dev/always=gpu:NoSchedule"}},
		{name: "a label that the owner selects by is not touched", template: content{labels: "app=x,team=a"}, selects: "app=x", want: content{labels: "team=a"}},
		{name: "nor is one of a selector's expression", template: content{labels: "app=x,team=a"}, expresses: "app", want: content{labels: "team=a"}},
		{name: "an annotation of that name is no label", template: content{annotations: "app=x"}, selects: "app=x", want: content{annotations: "app=x"}},
		{name: "labels that say whose it is are not touched", template: content{labels: "team=a,cluster.x-k8s.io/cluster-name=x,cluster.x-k8s.io/set-name=x,cluster.x-k8s.io/deployment-name=x,cluster.x-k8s.io/control-plane=x,cluster.x-k8s.io/control-plane-name=x"}, want: content{labels: "team=a"}},
		{name: "bookkeeping that somebody put into the template is inherited", template: content{labels: "topology.cluster.x-k8s.io/owned=", annotations: "cluster.x-k8s.io/mine=1"}, want: content{labels: "topology.cluster.x-k8s.io/owned=", annotations: "cluster.x-k8s.io/mine=1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			ms := &clusterv1.MachineSet{Spec: clusterv1.MachineSetSpec{Selector: selector(tc.selects, tc.expresses), Template: tc.template.template()}}
			ms.Spec.Template.Spec.MinReadySeconds = new(int32(5))
			before := ms.DeepCopy()

			got, _ := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}.External(inherit.TemplateOfMachineSet(ms), inherit.Object{})

			Expect(describeContent(&got.Top)).To(Equal(tc.want.want()))
			Expect(got.Top.Fields).To(Equal(inherit.Fields{}))
			Expect(got.Template).To(BeNil())
			Expect(ms).To(Equal(before), "the input is not mutated")
		})
	}
}

func TestExternalNeverInherits(t *testing.T) {
	for _, key := range neverInherited {
		t.Run(key, func(t *testing.T) {
			owner := controlPlane(content{labels: key + "=x,ok=1", annotations: key + "=x; ok=1"}, "", "")
			got, _ := inherit.Policy{}.External(inherit.TemplateOfControlPlane(owner), inherit.Object{})
			NewWithT(t).Expect(describeContent(&got.Top)).To(Equal(content{labels: "ok=1", annotations: "ok=1"}.want()))
		})
	}
}

// An external object of a Machine without an owner inherits nothing. What it has from an owner it keeps: see TestKeeps.
func TestExternalOfAnOrphan(t *testing.T) {
	NewWithT(t).Expect(first(inherit.Policy{}.External(nil, inherit.Object{}))).To(Equal(inherit.Object{}))
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
