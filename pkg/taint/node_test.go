// SPDX-License-Identifier: Apache-2.0

package taint_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func TestSync(t *testing.T) {
	for _, tc := range []struct {
		name, node, declared, recorded string
		initialized                    bool
		want                           string
	}{
		{name: "nothing declared changes nothing", node: "a:NoSchedule", want: "a:NoSchedule"},
		{name: "an Always taint is added behind what is there", node: "z:NoSchedule", declared: "gpu=true:NoSchedule", want: "z:NoSchedule,gpu=true:NoSchedule"},
		{name: "an Always taint removed by somebody comes back", declared: "gpu:NoSchedule", recorded: "gpu:NoSchedule", initialized: true, want: "gpu:NoSchedule"},
		{name: "an Always taint replaces another value where it stands", node: "gpu=old:NoSchedule,z:NoSchedule", declared: "gpu=new:NoSchedule", initialized: true, want: "gpu=new:NoSchedule,z:NoSchedule"},
		{name: "an Always taint that is there is not there twice", node: "gpu=a:NoSchedule", declared: "gpu=a:NoSchedule", initialized: true, want: "gpu=a:NoSchedule"},
		{name: "the same key with another effect is another taint", node: "gpu:NoExecute", declared: "gpu:NoSchedule", want: "gpu:NoExecute,gpu:NoSchedule"},

		{name: "an Initialize taint is on a new Node", declared: "gpu:NoSchedule@OnInitialization", want: "gpu:NoSchedule"},
		{name: "an Initialize taint replaces another value on a new Node", node: "gpu=x:NoSchedule", declared: "gpu=a:NoSchedule@OnInitialization", want: "gpu=a:NoSchedule"},
		{name: "an Initialize taint removed by somebody stays away", declared: "gpu:NoSchedule@OnInitialization", initialized: true},
		{name: "an Initialize taint changed by somebody stays changed", node: "gpu=x:NoSchedule", declared: "gpu=a:NoSchedule@OnInitialization", initialized: true, want: "gpu=x:NoSchedule"},
		{name: "an Initialize taint declared too late does not come", node: "z:NoSchedule", declared: "gpu:NoSchedule@OnInitialization", initialized: true, want: "z:NoSchedule"},
		{name: "an Initialize taint no longer declared stays, because it was never recorded", node: "gpu:NoSchedule", initialized: true, want: "gpu:NoSchedule"},
		{name: "an unknown propagation brings nothing", declared: "gpu:NoSchedule@Sometimes"},

		{name: "a recorded taint no longer declared goes", node: "a:NoSchedule,gpu=true:NoSchedule,b:NoSchedule", recorded: "gpu=true:NoSchedule", initialized: true, want: "a:NoSchedule,b:NoSchedule"},
		{name: "a record in Cluster API's form, without a value, means any value", node: "gpu=true:NoSchedule", recorded: "gpu:NoSchedule", initialized: true},
		{name: "a value that somebody changed since makes the taint theirs", node: "gpu=theirs:NoSchedule", recorded: "gpu=ours:NoSchedule", initialized: true, want: "gpu=theirs:NoSchedule"},
		{name: "a record of another effect does not touch the taint", node: "gpu:NoSchedule", recorded: "gpu:NoExecute", initialized: true, want: "gpu:NoSchedule"},
		{name: "a new effect replaces the old one", node: "gpu:NoSchedule", declared: "gpu:NoExecute", recorded: "gpu:NoSchedule", initialized: true, want: "gpu:NoExecute"},
		{name: "Always to Initialize leaves the taint", node: "gpu:NoSchedule", declared: "gpu:NoSchedule@OnInitialization", recorded: "gpu:NoSchedule", initialized: true, want: "gpu:NoSchedule"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			node, recorded := onNode(t, tc.node), onNode(t, tc.recorded)
			got := taint.Sync(node, declared(t, tc.declared), recorded, tc.initialized)
			Expect(inOrder(got)).To(Equal(inOrder(onNode(t, tc.want))))
			Expect(node).To(Equal(onNode(t, tc.node)), "the input is not mutated")
			Expect(recorded).To(Equal(onNode(t, tc.recorded)), "the input is not mutated")
		})
	}
}

func TestSyncKeepsTimeAdded(t *testing.T) {
	Expect := NewWithT(t).Expect
	now := metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	node := []corev1.Taint{{Key: "gpu", Effect: "NoExecute", TimeAdded: &now}}
	Expect(taint.Sync(node, declared(t, "gpu:NoExecute"), nil, true)).To(Equal(node))
}

// Two results must not share the spare capacity of a list: the package is pure.
func TestSyncSharesNothingBetweenResults(t *testing.T) {
	base := make([]corev1.Taint, 0, 4)
	first := taint.Sync(base, declared(t, "a:NoSchedule"), nil, true)
	taint.Sync(base, declared(t, "b:NoSchedule"), nil, true)
	NewWithT(t).Expect(first).To(Equal(onNode(t, "a:NoSchedule")))
}

func TestRemove(t *testing.T) {
	for _, tc := range []struct{ name, taints, want string }{
		{name: "the taint goes whatever its value", taints: "a:NoSchedule,gpu=x:NoSchedule,b:NoSchedule", want: "a:NoSchedule,b:NoSchedule"},
		{name: "the same key with another effect stays", taints: "gpu:NoExecute", want: "gpu:NoExecute"},
		{name: "an absent taint changes nothing", taints: "a:NoSchedule", want: "a:NoSchedule"},
		{name: "the last taint leaves an empty list", taints: "gpu:NoSchedule"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			taints := onNode(t, tc.taints)
			got := taint.Remove(taints, taint.ID{Key: "gpu", Effect: "NoSchedule"})
			Expect(inOrder(got)).To(Equal(inOrder(onNode(t, tc.want))))
			Expect(taints).To(Equal(onNode(t, tc.taints)), "the input is not mutated")
		})
	}
}
