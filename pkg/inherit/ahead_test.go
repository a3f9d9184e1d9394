// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// While its Machine has not inherited yet, a Node already has what the Machine does not have, listed in Heirloom's annotations. What
// the Machine has counts until it changes there. Once the Machine has inherited, what Heirloom's annotations list stays there, since
// moving it would be a second write.
func TestNodesInheritAheadOfTheirMachine(t *testing.T) {
	const label, note = "node.cluster.x-k8s.io/a", "node.cluster.x-k8s.io/note"
	gate := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}
	for _, tc := range []struct {
		name                   string
		policy                 inherit.Policy
		template, machine      content
		node, meanwhile, after content
	}{
		{
			name: "a label", template: content{labels: label + "=1"},
			meanwhile: content{labels: label + "=1", annotations: "own/labels=" + label},
			after:     content{labels: label + "=1", annotations: "own/labels=" + label},
		},
		{
			name: "a label that Cluster API's list still has", template: content{labels: label + "=1"},
			node:      content{labels: label + "=1", annotations: "capi/labels=" + label},
			meanwhile: content{labels: label + "=1", annotations: "capi/labels=; own/labels=" + label},
			after:     content{labels: label + "=1", annotations: "own/labels=" + label},
		},
		{
			name: "another value", template: content{labels: label + "=2"}, machine: content{labels: label + "=1"},
			meanwhile: content{labels: label + "=1", annotations: "capi/labels=" + label},
			after:     content{labels: label + "=2", annotations: "capi/labels=" + label},
		},
		{
			name: "an annotation", template: content{annotations: note + "=1"},
			meanwhile: content{annotations: note + "=1; own/annotations=" + note},
			after:     content{annotations: note + "=1; own/annotations=" + note},
		},
		{
			name: "a typed taint", policy: gate, template: content{taints: "gpu:NoSchedule"},
			meanwhile: content{taints: "gpu:NoSchedule", annotations: "own/taints=gpu:NoSchedule"},
			after:     content{taints: "gpu:NoSchedule", annotations: "own/taints=gpu:NoSchedule"}, // until Cluster API lists it
		},
		{
			name: "another value of a typed taint", policy: gate,
			template: content{taints: "gpu=new:NoSchedule"}, machine: content{taints: "gpu=old:NoSchedule"},
			meanwhile: content{taints: "gpu=old:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"},
			after:     content{taints: "gpu=new:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"},
		},
		{
			name: "another value of an annotated taint", policy: inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled},
			template:  content{annotations: "taints.heirloom.dev/always=gpu=new:NoSchedule"},
			machine:   content{annotations: "taints.heirloom.dev/always=gpu=old:NoSchedule"},
			meanwhile: content{taints: "gpu=new:NoSchedule", annotations: "own/taints=gpu=new:NoSchedule"},
			after:     content{taints: "gpu=new:NoSchedule", annotations: "own/taints=gpu=new:NoSchedule"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			template := inherit.TemplateOfMachineSet(&clusterv1.MachineSet{Spec: clusterv1.MachineSetSpec{Template: tc.template.template()}})
			m := tc.machine.machine()
			sync := func(m *clusterv1.Machine, node inherit.NodeState) inherit.NodeState {
				source := inherit.SourceOfMachine(tc.policy.EffectiveMachine(template, m)).AheadOf(m)
				synced, err := withProblems(tc.policy.Node(source, node, inherit.Privileged))
				Expect(err).NotTo(HaveOccurred())
				again, err := withProblems(tc.policy.Node(source, synced, inherit.Privileged))
				Expect(err).NotTo(HaveOccurred())
				Expect(again.Equal(synced)).To(BeTrue(), "a second time changes nothing")
				return synced
			}
			node := sync(m, tc.node.initialized())
			Expect(withoutEmpty(node)).To(Equal(withoutEmpty(tc.meanwhile.initialized())), "before the Machine inherits")

			inherited := m.DeepCopy()
			inherited.Labels, inherited.Annotations = labels(tc.template.labels), annotations(tc.template.annotations)
			inherited.Spec.Taints = declared(tc.template.taints)
			Expect(withoutEmpty(sync(inherited, node))).To(Equal(withoutEmpty(tc.after.initialized())), "after")
		})
	}
}

// withoutEmpty describes a Node without lists of Cluster API that list nothing.
func withoutEmpty(node inherit.NodeState) []string {
	node.Annotations = filterEmpty(node.Annotations)
	return describe(node)
}

func filterEmpty(all map[string]string) map[string]string {
	rest := map[string]string{}
	for key, value := range all {
		if value != "" {
			rest[key] = value
		}
	}
	return rest
}

// A MachinePool's Nodes have no Machine, so nothing is ahead of one.
func TestNothingIsAheadWithoutAMachine(t *testing.T) {
	Expect := NewWithT(t).Expect
	mp := &clusterv1.MachinePool{Spec: clusterv1.MachinePoolSpec{Template: content{labels: "node.cluster.x-k8s.io/a=1"}.template()}}
	got, err := withProblems(inherit.Policy{}.Node(inherit.SourceOfMachinePool(mp, inherit.TemplateOfMachinePool(mp)), content{}.initialized(), inherit.Privileged))
	Expect(err).NotTo(HaveOccurred())
	Expect(withoutEmpty(got)).To(ConsistOf("label node.cluster.x-k8s.io/a=1", "annotation cluster.x-k8s.io/labels-from-machine=node.cluster.x-k8s.io/a"))
}
