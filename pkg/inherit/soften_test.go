// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const softened = "heirloom.node-restriction.kubernetes.io/softened=20261127T203127Z"

// After its turn, a Node has NoSchedule in place of NoExecute, and only NoExecute once its Pods have left.
func TestSoftenedTaints(t *testing.T) {
	const drain = "taints.heirloom.dev/always=drain=a:NoExecute"
	for _, tc := range []struct {
		name           string
		machine, node  content
		held           string
		waits, becomes content
		withdrawn      []string
	}{
		{
			name: "a typed taint", machine: content{taints: "drain=a:NoExecute"}, held: "drain:NoExecute",
			waits:     content{taints: "drain=a:NoSchedule", labels: softened, annotations: "capi/taints=; own/taints=drain=a:NoSchedule"},
			becomes:   content{taints: "drain=a:NoExecute", annotations: "capi/taints=drain:NoExecute"},
			withdrawn: []string{"annotation cluster.x-k8s.io/taints-from-machine="},
		},
		{
			name: "the value that the Node has stays until its Pods have left", machine: content{annotations: drain}, held: "drain:NoExecute",
			node:    content{taints: "drain=old:NoExecute", annotations: "capi/taints=; own/taints=drain=old:NoExecute"},
			waits:   content{taints: "drain=old:NoExecute,drain=a:NoSchedule", labels: softened, annotations: "capi/taints=; own/taints=drain=a:NoSchedule,drain=old:NoExecute"},
			becomes: content{taints: "drain=a:NoExecute", annotations: "capi/taints=; own/taints=drain=a:NoExecute"},
		},
		{
			name: "NoSchedule that the owner declares stands", machine: content{annotations: drain + ",drain=b:NoSchedule"}, held: "drain:NoExecute",
			waits:   content{taints: "drain=b:NoSchedule", labels: softened, annotations: "capi/taints=; own/taints=drain=b:NoSchedule"},
			becomes: content{taints: "drain=b:NoSchedule,drain=a:NoExecute", annotations: "capi/taints=; own/taints=drain=a:NoExecute,drain=b:NoSchedule"},
		},
		{
			name: "NoSchedule of somebody else stays, before and after", machine: content{annotations: drain}, held: "drain:NoExecute",
			node:      content{taints: "drain=theirs:NoSchedule", annotations: "capi/taints="},
			waits:     content{taints: "drain=theirs:NoSchedule", labels: softened, annotations: "capi/taints="},
			becomes:   content{taints: "drain=theirs:NoSchedule,drain=a:NoExecute", annotations: "capi/taints=; own/taints=drain=a:NoExecute"},
			withdrawn: []string{"annotation cluster.x-k8s.io/taints-from-machine=", "taint drain=theirs:NoSchedule"},
		},
		{
			name: "only what evicts is softened", machine: content{annotations: "taints.heirloom.dev/initialize=boot:NoExecute,cold:NoSchedule"}, held: "boot:NoExecute",
			waits: content{
				taints: "boot:NoSchedule", labels: softened + ",heirloom.node-restriction.kubernetes.io/initialization=waiting",
				annotations: "capi/taints=; own/taints=boot:NoSchedule",
			},
			becomes: content{taints: "boot:NoExecute,cold:NoSchedule", annotations: "capi/taints="},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			held := []taint.ID{taint.IDOf(onNode(tc.held)[0])}
			policy, m := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}, tc.machine.machine()
			node := func(source inherit.NodeSource, held []taint.ID, has inherit.NodeState) inherit.NodeState {
				result := whole(policy.NodeHolding(source, held, has, inherit.Privileged))
				return result
			}
			source, turn := inherit.SourceOfMachine(m), inherit.Softening(tc.node.node(), time.Date(2026, 11, 27, 20, 31, 27, 5, time.UTC))
			waits := node(source, held, turn)
			Expect(describe(waits)).To(ConsistOf(describe(tc.waits.node())))
			Expect(node(source, held, waits).Equal(waits)).To(BeTrue(), "it stays so")
			undone := waits
			for _, t := range inherit.RecordOf(waits).Taints {
				if t.Effect == corev1.TaintEffectNoSchedule {
					undone.Taints = taint.Remove(undone.Taints, taint.IDOf(t))
				}
			}
			Expect(node(source, held, undone).Taints).To(ConsistOf(waits.Taints), "Heirloom's taint is restored")
			Expect(describe(node(source, nil, waits))).To(ConsistOf(describe(tc.becomes.node())))
			if tc.withdrawn != nil {
				Expect(describe(node(inherit.SourceOfMachine(content{}.machine()), nil, waits))).To(ConsistOf(tc.withdrawn))
			}
		})
	}
}

// A Node has one turn. An unreadable time counts as now.
func TestSoftenedSince(t *testing.T) {
	Expect := NewWithT(t).Expect
	turn := time.Date(2026, 11, 27, 20, 31, 27, 0, time.UTC)
	node := inherit.Softening(inherit.NodeState{}, turn)
	Expect(node.Softened()).To(BeTrue())
	Expect(inherit.Softening(node, turn.Add(time.Hour)).SoftenedSince(turn.Add(2 * time.Hour))).To(Equal(turn))
	node.Labels[inherit.SoftenedLabel] = "forever"
	Expect(node.Softened()).To(BeTrue())
	Expect(node.SoftenedSince(turn)).To(Equal(turn))
	Expect(inherit.Softening(node, turn).SoftenedSince(turn.Add(time.Hour))).To(Equal(turn), "the unreadable time is replaced")
	Expect(inherit.Softening(inherit.NodeState{}, turn.In(time.FixedZone("", 3600))).Labels).To(HaveKeyWithValue(inherit.SoftenedLabel, "20261127T203127Z"))
}
