// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// controlPlane declares something by the v1beta2 contract, and older by that of v1beta1.
func controlPlane(metadata content, taints, older string) *inherit.ControlPlane {
	machines := &inherit.ControlPlaneMachineTemplate{}
	cp := &inherit.ControlPlane{Spec: inherit.ControlPlaneSpec{MachineTemplate: machines}}
	machines.ObjectMeta = metadata.template().ObjectMeta
	machines.Spec.Taints, machines.Taints = declared(taints), declared(older)
	return cp
}

// TestControlPlane is rule 4: ControlPlane spec.machineTemplate → Machine.
func TestControlPlane(t *testing.T) {
	const role = "node-role.kubernetes.io/control-plane:NoSchedule"
	for _, tc := range []struct {
		name  string
		owner *inherit.ControlPlane
		want  content
	}{
		{name: "labels and annotations reach the Machine", owner: controlPlane(content{labels: "team=a", annotations: "note=x"}, "", ""), want: content{labels: "team=a", annotations: "note=x"}},
		{name: "taints of the v1beta2 contract reach the Machine", owner: controlPlane(content{}, role, ""), want: content{taints: role}},
		{name: "taints of the v1beta1 contract reach the Machine", owner: controlPlane(content{}, "", role), want: content{taints: role}},
		{name: "where an object has both, the newer contract counts", owner: controlPlane(content{}, "new:NoSchedule", "old:NoSchedule"), want: content{taints: "new:NoSchedule"}},
		{name: "keys that are never inherited are not", owner: controlPlane(content{labels: "argocd.argoproj.io/instance=x", annotations: "meta.helm.sh/release-name=x"}, "", "")},
		{
			// A control plane finds its Machines by these, and sets them itself, whatever the template says.
			name:  "labels that say whose Machine it is are not touched",
			owner: controlPlane(content{labels: "cluster.x-k8s.io/cluster-name=other,cluster.x-k8s.io/control-plane=x,cluster.x-k8s.io/control-plane-name=other,team=a"}, "", ""),
			want:  content{labels: "team=a"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			got, err := withProblems(inherit.Policy{}.MachineFrom(inherit.TemplateOfControlPlane(tc.owner), content{}.controller()))
			Expect(err).NotTo(HaveOccurred())
			Expect(describeContent(&got.Top)).To(Equal(tc.want.want()))
		})
	}
}

// TestMachinePool is rule 9: MachinePool spec.template → its Machines, or the Nodes themselves.
func TestMachinePool(t *testing.T) {
	Expect := NewWithT(t).Expect
	declares := content{labels: "node.cluster.x-k8s.io/a=1,helm.sh/chart=x", annotations: "taints.heirloom.dev/always=gpu:NoSchedule; node.cluster.x-k8s.io/b=2", taints: "typed:NoSchedule"}
	mp := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Name: "mp", Namespace: "ns", Labels: labels("node.cluster.x-k8s.io/own=1")}}
	mp.Spec.ClusterName, mp.Spec.Template = "c", declares.template()
	before := mp.DeepCopy()

	m, err := withProblems(inherit.Policy{}.MachineFrom(inherit.TemplateOfMachinePool(mp), content{}.machine()))
	Expect(err).NotTo(HaveOccurred())
	Expect(describeContent(&m.Top)).To(Equal(content{labels: "node.cluster.x-k8s.io/a=1", annotations: declares.annotations, taints: "typed:NoSchedule"}.want()))

	node, err := withProblems(inherit.Policy{}.Node(inherit.SourceOfMachinePool(mp, inherit.TemplateOfMachinePool(mp)), content{}.node(), inherit.Privileged))
	Expect(err).NotTo(HaveOccurred())
	Expect(describe(node)).To(Equal(describe(content{
		labels:      "node.cluster.x-k8s.io/a=1",
		annotations: "node.cluster.x-k8s.io/b=2; capi/labels=node.cluster.x-k8s.io/a; capi/annotations=node.cluster.x-k8s.io/b; capi/taints=typed:NoSchedule; own/taints=gpu:NoSchedule",
		taints:      "gpu:NoSchedule,typed:NoSchedule",
	}.node())))
	Expect(mp).To(Equal(before), "the input is not mutated")
}
