// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

func TestWhatAWriteChanges(t *testing.T) {
	for _, tc := range []struct {
		name            string
		current, result content
		brought         []string
		removed         []string
	}{
		{name: "nothing"},
		{name: "what is new is brought", result: content{labels: "a=1", annotations: "b=2", taints: "t=3:NoSchedule"}, brought: []string{`label "a"`, `annotation "b"`, `taint "t=3:NoSchedule"`}},
		{name: "what has a new value is brought", current: content{labels: "a=1", taints: "t=1:NoSchedule"}, result: content{labels: "a=2", taints: "t=2:NoSchedule"}, brought: []string{`label "a"`, `taint "t=2:NoSchedule"`}},
		{name: "what goes is removed", current: content{labels: "a=1", annotations: "b=2", taints: "t=3:NoSchedule"}, removed: []string{`label "a"`, `annotation "b"`, `taint "t=3:NoSchedule"`}},
		{name: "what stays is neither", current: content{labels: "a=1", taints: "t=1:NoSchedule"}, result: content{labels: "a=1", taints: "t=1:NoSchedule"}},
		{name: "tracking is neither", current: content{annotations: "capi/labels=a"}, result: content{annotations: "own/labels=b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(named(inherit.Brought(tc.current.node(), tc.result.node()))).To(Equal(tc.brought))
			g.Expect(named(inherit.Removed(tc.current.node(), tc.result.node()))).To(Equal(tc.removed))
		})
	}
}

func TestLost(t *testing.T) {
	result := content{labels: "a=1,b=2", annotations: "c=3; d=4", taints: "t=5:NoSchedule,u=6:NoSchedule"}
	for _, tc := range []struct {
		name    string
		current content
		want    []string
	}{
		{name: "what a Node never had is not lost"},
		{name: "what is recorded and not there is", current: content{annotations: "capi/labels=a; capi/annotations=c; capi/taints=t:NoSchedule"}, want: []string{`label "a"`, `annotation "c"`, `taint "t=5:NoSchedule"`}},
		{name: "also if only Heirloom brings it", current: content{annotations: "own/labels=b; own/annotations=d; own/taints=u=6:NoSchedule"}, want: []string{`label "b"`, `annotation "d"`, `taint "u=6:NoSchedule"`}},
		{name: "what is there is not", current: content{labels: "a=1", annotations: "c=3; capi/labels=a; capi/annotations=c; capi/taints=t:NoSchedule", taints: "t=5:NoSchedule"}},
		{name: "what has another value may be an owner's change", current: content{labels: "a=0", annotations: "capi/labels=a; capi/taints=t:NoSchedule", taints: "t=0:NoSchedule"}},
		{name: "what is inherited no more is not", current: content{annotations: "capi/labels=gone; capi/taints=gone:NoSchedule"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			NewWithT(t).Expect(named(inherit.Lost(tc.current.node(), result.node()))).To(Equal(tc.want))
		})
	}
}

func TestUnprotected(t *testing.T) {
	for _, tc := range []struct {
		name          string
		machine, node content
		want          []string
	}{
		{name: "a Node whose Machine declares nothing"},
		{name: "a Node with its taints", machine: content{taints: "t=1:NoSchedule", annotations: "taints.heirloom.dev/always=u:NoExecute"}, node: content{taints: "t=1:NoSchedule,u:NoExecute"}},
		{name: "a Node without them", machine: content{taints: "t=1:NoSchedule", annotations: "taints.heirloom.dev/always=u:NoExecute"}, want: []string{"t:NoSchedule", "u:NoExecute"}},
		{name: "another value does not protect", machine: content{taints: "t=1:NoSchedule"}, node: content{taints: "t=2:NoSchedule"}, want: []string{"t:NoSchedule"}},
		{name: "Initialize taints may go", machine: content{taints: "t=1:NoSchedule@OnInitialization"}},
		{name: "reserved taints are not to come", machine: content{taints: "node.kubernetes.io/not-ready:NoSchedule"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, id := range inherit.SourceOfMachine(tc.machine.machine()).Unprotected(tc.node.node()) {
				got = append(got, id.String())
			}
			NewWithT(t).Expect(got).To(Equal(tc.want))
		})
	}
}

func TestUnlabelled(t *testing.T) {
	policy := inherit.Policy{AdditionalLabels: regexes(`^kubernetes\.io/extra$`)}
	for _, tc := range []struct {
		name          string
		machine, node content
		want          bool
	}{
		{name: "a Machine without labels"},
		{name: "a label that the kubelet may not set", machine: content{labels: "node-role.kubernetes.io/worker=x"}, want: true},
		{name: "it is there", machine: content{labels: "node-role.kubernetes.io/worker=x"}, node: content{labels: "node-role.kubernetes.io/worker=x"}},
		{name: "it has another value", machine: content{labels: "node-role.kubernetes.io/worker=x"}, node: content{labels: "node-role.kubernetes.io/worker=y"}, want: true},
		{name: "one that comes with the registration", machine: content{labels: "node.cluster.x-k8s.io/pool=x"}},
		{name: "one that does not reach Nodes", machine: content{labels: "kubernetes.io/other=x"}},
		{name: "one that the operator wants on Nodes", machine: content{labels: "kubernetes.io/extra=x"}, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			NewWithT(t).Expect(policy.Unlabelled(inherit.SourceOfMachine(tc.machine.machine()), tc.node.node())).To(Equal(tc.want))
		})
	}
}

func TestRegistering(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name   string
		age    time.Duration
		taints string
		want   bool
	}{
		{name: "a new Node", age: time.Minute, want: true},
		{name: "an old one", age: time.Hour},
		{name: "one that was never initialized", age: time.Hour, taints: "node.cluster.x-k8s.io/uninitialized:NoSchedule", want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := &corev1.Node{Spec: corev1.NodeSpec{Taints: onNode(tc.taints)}}
			node.CreationTimestamp = metav1.NewTime(now.Add(-tc.age))
			NewWithT(t).Expect(inherit.Registering(node, now)).To(Equal(tc.want))
		})
	}
}

func TestBrokenTracking(t *testing.T) {
	g := NewWithT(t)
	g.Expect(inherit.BrokenTracking(content{annotations: "capi/taints=t:NoSchedule; own/taints=u=1:NoExecute"}.node())).To(Succeed())
	expectProblem(t, inherit.BrokenTracking(content{annotations: "capi/taints=???"}.node()), "cluster.x-k8s.io/taints-from-machine")
	expectProblem(t, inherit.BrokenTracking(content{annotations: "own/taints=???"}.node()), "heirloom.dev/taints-from-machine")
}
