// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"runtime"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// inheritedBy is what a Node of a MachineSet inherits. Every call makes maps of its own, as the rules do.
func inheritedBy(set string) inherit.NodeState {
	state := inherit.NodeState{
		Labels:      map[string]string{"node.cluster.x-k8s.io/set": set},
		Annotations: map[string]string{"node.cluster.x-k8s.io/set": set},
		Taints:      []corev1.Taint{{Key: "gpu", Value: set, Effect: corev1.TaintEffectNoSchedule}},
	}
	for i := range 10 {
		state.Labels[fmt.Sprintf("node.cluster.x-k8s.io/label-%d", i)] = "value"
		state.Annotations[fmt.Sprintf("node.cluster.x-k8s.io/annotation-%d", i)] = "value"
	}
	return state
}

func nodeOf(n int) NodeRequest {
	return NodeRequest{Cluster: types.NamespacedName{Namespace: "ns", Name: "prod"}, Name: fmt.Sprintf("node-%d", n)}
}

// Nodes that inherit the same are remembered with one state, and each other Node with its own.
func TestWhatNodesHadIsRememberedOnce(t *testing.T) {
	Expect := NewWithT(t).Expect
	memory := newNodeMemory()
	// One that is known until the next: two may have the same place.
	for n, set := range []string{"blue", "blue", "green", "green"} {
		memory.set(nodeOf(n), inheritedBy(set))
	}
	other := inheritedBy("blue")
	other.Taints[0].Value = "differs in nothing that the hash reads"
	memory.set(nodeOf(4), other)

	state := func(n int) any {
		known, _ := memory.had.Get(nodeOf(n))
		return known
	}
	Expect(state(0)).To(BeIdenticalTo(state(1)))
	Expect(state(2)).To(BeIdenticalTo(state(3)))
	for n, want := range []inherit.NodeState{inheritedBy("blue"), inheritedBy("blue"), inheritedBy("green"), inheritedBy("green"), other, {}} {
		Expect(memory.of(nodeOf(n))).To(Equal(want), "%d", n)
	}
	memory.set(nodeOf(0), inheritedBy("green"))
	Expect(memory.of(nodeOf(0))).To(Equal(inheritedBy("green")))
	Expect(memory.of(nodeOf(1))).To(Equal(inheritedBy("blue")), "what another Node had does not follow")
}

// BenchmarkNodeMemory reports how much heap is taken by what one Node had, of which a hundred others had the same.
func BenchmarkNodeMemory(b *testing.B) {
	const nodes = 2000
	var before, after runtime.MemStats
	total := uint64(0)
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		memory := newNodeMemory()
		for n := range nodes {
			memory.set(nodeOf(n), inheritedBy(fmt.Sprint(n/100)))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		total += after.HeapAlloc - before.HeapAlloc
		runtime.KeepAlive(memory)
	}
	b.ReportMetric(float64(total)/float64(b.N)/nodes, "B/Node")
}
