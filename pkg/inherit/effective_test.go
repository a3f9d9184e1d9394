// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// A Node that registers before its Machine or MachineSet has inherited gets the entries that they will inherit, above all the
// OnInitialization taints, which a Node gets in its first sync or never. The Machine's current entries apply until they change there.
func TestSourceOfANodeAheadOfItsMachine(t *testing.T) {
	Expect := NewWithT(t).Expect
	declares := content{
		labels: "node.cluster.x-k8s.io/a=1", annotations: "taints.heirloom.dev/initialize=warm:NoSchedule", taints: "gpu=new:NoSchedule",
	}
	md := &clusterv1.MachineDeployment{Spec: clusterv1.MachineDeploymentSpec{Template: declares.template()}}
	bare := &clusterv1.MachineSet{}
	m := content{labels: "mine=1", taints: "gpu=old:NoSchedule,own:NoSchedule"}.machine()
	policy := inherit.Policy{}

	effective := policy.EffectiveMachine(policy.EffectiveMachineSet(md, bare), m)

	Expect(describeContent(&inherit.Content{Labels: effective.Labels, Annotations: effective.Annotations, Taints: effective.Spec.Taints})).To(Equal(content{
		labels: "mine=1,node.cluster.x-k8s.io/a=1", annotations: "taints.heirloom.dev/initialize=warm:NoSchedule", taints: "gpu=old:NoSchedule,own:NoSchedule",
	}.want()))
	Expect(bare.Spec.Template.Labels).To(BeEmpty(), "the input is not mutated")
	Expect(m.Labels).To(HaveLen(1), "the input is not mutated")
	Expect(policy.EffectiveMachine(nil, m)).To(Equal(m), "a Machine without an owner stays unchanged")
}

// EffectiveMachine returns a Machine that already has every declared entry as it is. The result must equal the computed result for a
// Machine that lacks one label.
func TestEffectiveMachines(t *testing.T) {
	const lacking = "node.cluster.x-k8s.io/lacking"
	cut := 0
	rapid.Check(t, func(t *rapid.T) {
		owner, m, policy := &clusterv1.MachineSet{}, declaring.Draw(t, "Machine").machine(), policies.Draw(t, "policy")
		owner.Spec.Template = declaring.Draw(t, "template").template()
		if rapid.Bool().Draw(t, "has it all") {
			inherited, _ := policy.MachineFrom(inherit.TemplateOfMachineSet(owner), m)
			m.Labels, m.Annotations, m.Spec.Taints = inherited.Top.Labels, inherited.Top.Annotations, inherited.Top.Taints
		}
		got := policy.EffectiveMachine(inherit.TemplateOfMachineSet(owner), m)
		if got == m {
			cut++
		}
		owner.Spec.Template.Labels[lacking] = "yes"
		want := policy.EffectiveMachine(inherit.TemplateOfMachineSet(owner), m)
		delete(want.Labels, lacking)
		content := func(m *clusterv1.Machine) []string {
			return describeContent(&inherit.Content{Labels: m.Labels, Annotations: m.Annotations, Taints: taint.Merge(m.Spec.Taints, nil)})
		}
		NewWithT(t).Expect(content(got)).To(Equal(content(want)))
	})
	NewWithT(t).Expect(cut).To(BeNumerically(">", 200))
}
