// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
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

// Each Node is remembered with its own state.
func TestWhatNodesHadIsRemembered(t *testing.T) {
	Expect := NewWithT(t).Expect
	memory := newNodeMemory()
	for n, set := range []string{"blue", "blue", "green", "green"} {
		memory.set(nodeOf(n), inheritedBy(set))
	}
	other := inheritedBy("blue")
	other.Taints[0].Value = "other"
	memory.set(nodeOf(4), other)

	for n, want := range []inherit.NodeState{inheritedBy("blue"), inheritedBy("blue"), inheritedBy("green"), inheritedBy("green"), other, {}} {
		Expect(memory.of(nodeOf(n))).To(Equal(want), "%d", n)
	}
	memory.set(nodeOf(0), inheritedBy("green"))
	Expect(memory.of(nodeOf(0))).To(Equal(inheritedBy("green")))
	Expect(memory.of(nodeOf(1))).To(Equal(inheritedBy("blue")), "what another Node had does not follow")
}
