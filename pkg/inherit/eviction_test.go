// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func TestEvicting(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const drain, drainID = "drain=now:NoExecute", "drain:NoExecute"
	for _, tc := range []struct {
		name             string
		typed, annotated string
		initialize       string
		age              time.Duration
		has, before      string
		tracked          string
		untracked        bool
		waiting          bool
		want             []string
	}{
		{name: "a new NoExecute taint evicts", typed: drain, age: time.Hour, want: []string{drainID}},
		{name: "so does one that is declared by annotation", annotated: drain, age: time.Hour, want: []string{drainID}},
		{name: "other effects do not", typed: "drain=now:NoSchedule", age: time.Hour},
		{name: "one that the Node has does not", typed: drain, age: time.Hour, has: drain},
		{name: "one whose value an owner has changed evicts", typed: drain, age: time.Hour, has: "drain=old:NoExecute", tracked: "own/taints=drain=old:NoExecute", want: []string{drainID}},
		{name: "one whose value somebody else has changed is put back at once", typed: drain, age: time.Hour, has: "drain=x:NoExecute", tracked: "own/taints=" + drain},
		{name: "one that was taken away from the Node is put back at once", typed: drain, age: time.Hour, tracked: "capi/taints=drain:NoExecute"},
		{name: "one that this very write takes away has evicted all it can", typed: drain, age: time.Hour, before: drain},
		{name: "unless it was stored with another value", typed: drain, age: time.Hour, before: "drain=x:NoExecute", want: []string{drainID}},
		{name: "a Node that is registering gets everything", typed: drain, initialize: "boot:NoExecute", age: time.Minute, untracked: true},
		{name: "one that existed before Heirloom does not", typed: drain, age: time.Hour, untracked: true, want: []string{drainID}},
		{name: "a young Node that has inherited already does not", typed: drain, age: time.Minute, want: []string{drainID}},

		{name: "an Initialize taint does not come to a Node that has been initialized", typed: drain + "@OnInitialization", initialize: "boot:NoExecute", age: time.Hour},
		{name: "to one in use that has not it does, typed", typed: drain + "@OnInitialization", age: time.Hour, untracked: true, want: []string{drainID}},
		{name: "and annotated", initialize: "boot:NoExecute", age: time.Hour, untracked: true, want: []string{"boot:NoExecute"}},
		{name: "and while it waits for that", initialize: "boot:NoExecute", age: time.Hour, waiting: true, want: []string{"boot:NoExecute"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"note": "x"}}}
			m.Spec.Taints = declared(tc.typed)
			if tc.annotated != "" {
				m.Annotations[taint.AlwaysAnnotation] = tc.annotated + ",gpu:NoSchedule"
			}
			if tc.initialize != "" {
				m.Annotations[taint.InitializeAnnotation] = tc.initialize
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: now.Add(-tc.age)}}}
			if !tc.untracked {
				node.Annotations = annotations("capi/taints=; " + tc.tracked)
				node.Labels = map[string]string{inherit.RecordLabel: ""}
			}
			node.Spec.Taints = onNode(tc.has)
			if tc.waiting {
				node.Labels[inherit.InitializationLabel] = "waiting"
			}

			evicting := inherit.SourceOfMachine(m).Evicting(node, onNode(tc.before), now)
			var got []string
			for _, id := range evicting {
				got = append(got, id.String())
			}
			Expect(got).To(Equal(tc.want))

			before := m.DeepCopy()
			counting := inherit.SourceOfMachine(m).Holding(evicting, inherit.OfNode(node, now))
			Expect(m).To(Equal(before), "the input is not mutated")
			Expect(counting.Evicting(node, onNode(tc.before), now)).To(BeEmpty())
			Expect(counting.Annotations).To(HaveKeyWithValue("note", "x"))
			if tc.annotated != "" {
				Expect(counting.Unprotected(inherit.NodeState{})).To(ContainElement(HaveField("Key", "gpu")), "the others stay")
			}
		})
	}
}

// waits is the Node while the held taints wait; becomes is the Node after its turn.
func TestNodeHolding(t *testing.T) {
	const waiting = "heirloom.node-restriction.kubernetes.io/initialization=waiting"
	for _, tc := range []struct {
		name           string
		machine, node  content
		held           string
		waits, becomes content
	}{
		{
			name: "the other taints come at once", machine: content{taints: "drain:NoExecute,gpu:NoSchedule"}, held: "drain:NoExecute",
			waits: content{taints: "gpu:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}, becomes: content{taints: "gpu:NoSchedule,drain:NoExecute", annotations: "capi/taints=drain:NoExecute,gpu:NoSchedule"},
		},
		{
			name: "that of somebody else does not become ours before", machine: content{annotations: "taints.heirloom.dev/always=drain=new:NoExecute"}, held: "drain:NoExecute",
			node:    content{taints: "drain=foreign:NoExecute", annotations: "capi/taints="},
			waits:   content{taints: "drain=foreign:NoExecute", annotations: "capi/taints="},
			becomes: content{taints: "drain=new:NoExecute", annotations: "capi/taints=; own/taints=drain=new:NoExecute"},
		},
		{
			name: "Initialize taints wait together", machine: content{taints: "gpu:NoSchedule", annotations: "taints.heirloom.dev/initialize=boot:NoExecute,cold:NoSchedule"}, held: "boot:NoExecute",
			waits:   content{taints: "gpu:NoSchedule", labels: waiting, annotations: "capi/taints=gpu:NoSchedule"},
			becomes: content{taints: "gpu:NoSchedule,boot:NoExecute,cold:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"},
		},
		{
			name: "a typed Initialize taint that waits does not uncover an annotated one", machine: content{taints: "drain:NoExecute@OnInitialization", annotations: "taints.heirloom.dev/always=drain:NoExecute"}, held: "drain:NoExecute",
			waits: content{labels: waiting, annotations: "capi/taints="}, becomes: content{taints: "drain:NoExecute", annotations: "capi/taints="},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			var held []taint.ID
			for _, h := range onNode(tc.held) {
				held = append(held, taint.IDOf(h))
			}
			policy, m := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}, tc.machine.machine()
			waits := whole(policy.NodeHolding(inherit.SourceOfMachine(m), held, tc.node.node(), inherit.Privileged))
			Expect(describe(waits)).To(Equal(describe(tc.waits.node())))
			again, _ := policy.NodeHolding(inherit.SourceOfMachine(m), held, waits, inherit.Privileged)
			Expect(again.Equal(waits)).To(BeTrue(), "it stays so")
			becomes, _ := policy.NodeHolding(inherit.SourceOfMachine(m), nil, waits, inherit.Privileged)
			Expect(describe(becomes)).To(ConsistOf(describe(tc.becomes.node())))
		})
	}
}

// For every Machine and Node, held taints evict no Pods, and no held taint is lost.
func TestHoldingEvictsNothingAndLosesNothing(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		Expect := NewWithT(t).Expect
		m, policy := declaring.Draw(t, "Machine").machine(), policies.Draw(t, "policy")
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: now.Add(-time.Hour)}}}
		has := inheriting.Draw(t, "Node").node()
		node.Labels, node.Annotations, node.Spec.Taints = has.Labels, has.Annotations, has.Taints

		held := inherit.SourceOfMachine(m).Evicting(node, nil, now)
		if rapid.Bool().Draw(t, "softened") {
			has = inherit.Softening(has, now)
		}
		waits, _ := policy.NodeHolding(inherit.SourceOfMachine(m), held, has, inherit.Privileged)
		for _, id := range held {
			i, before := taint.Find(waits.Taints, id), taint.Find(has.Taints, id)
			if i >= 0 && (before < 0 || has.Taints[before].Value != waits.Taints[i].Value) {
				t.Fatalf("%s came before its turn: %v", id, describe(waits))
			}
		}
		node.Labels, node.Annotations, node.Spec.Taints = waits.Labels, waits.Annotations, waits.Taints
		Expect(inherit.SourceOfMachine(m).Evicting(node, nil, now)).To(ConsistOf(held), "the same taints still wait")
		becomes, _ := policy.NodeHolding(inherit.SourceOfMachine(m), nil, waits, inherit.Privileged)
		for _, id := range held {
			Expect(taint.Find(becomes.Taints, id)).To(BeNumerically(">=", 0), "%s was lost", id)
		}
	})
}
