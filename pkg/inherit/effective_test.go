// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// A Node that registers before its Machine, and even the MachineSet, has inherited gets what they will have: above all
// the Initialize taints, which come with the first sync or never. What the Machine has counts until it changes there.
func TestNodesInheritWhatTheirMachineWillCarry(t *testing.T) {
	Expect := NewWithT(t).Expect
	declares := content{
		labels: "node.cluster.x-k8s.io/a=1", annotations: "taints.heirloom.dev/initialize=warm:NoSchedule", taints: "gpu=new:NoSchedule",
	}
	md := &capi.MachineDeployment{Spec: capi.WorkersSpec{Template: declares.template()}}
	bare := &capi.MachineSet{}
	m := content{labels: "mine=1", taints: "gpu=old:NoSchedule,own:NoSchedule"}.machine()
	policy := inherit.Policy{}

	ms := policy.EffectiveMachineSet(md, bare)
	effective := policy.EffectiveMachine(inherit.TemplateOfMachineSet(ms), m)

	Expect(describeContent(&inherit.Content{Labels: effective.Labels, Annotations: effective.Annotations, Taints: effective.Spec.Taints})).To(Equal(content{
		labels: "mine=1,node.cluster.x-k8s.io/a=1", annotations: "taints.heirloom.dev/initialize=warm:NoSchedule", taints: "gpu=old:NoSchedule,own:NoSchedule",
	}.want()))
	Expect(bare.Spec.Template.Labels).To(BeEmpty(), "the input is not mutated")
	Expect(m.Labels).To(HaveLen(1), "the input is not mutated")
	Expect(policy.EffectiveMachine(nil, m)).To(Equal(m), "a Machine without an owner is what it is")
}
