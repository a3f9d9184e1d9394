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
		{name: "what has another value may be an owner's change", current: content{labels: "a=0", annotations: "capi/labels=a; capi/taints=t:NoSchedule", taints: "t=0:NoSchedule"}},
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

func TestRelease(t *testing.T) {
	for _, tc := range []struct {
		name       string
		node, want content
		keep       bool
	}{
		{name: "what we list goes, with the lists", node: content{labels: "team=a,mine=1", annotations: "note=x; mine=1; own/labels=team; own/annotations=note; own/taints=gpu=1:NoSchedule", taints: "gpu=1:NoSchedule,mine:NoSchedule"}, want: content{labels: "mine=1", annotations: "mine=1", taints: "mine:NoSchedule"}},
		{name: "where values stay, only the lists go", keep: true, node: content{labels: "team=a", annotations: "note=x; own/labels=team; own/annotations=note; own/taints=gpu=1:NoSchedule", taints: "gpu=1:NoSchedule"}, want: content{labels: "team=a", annotations: "note=x", taints: "gpu=1:NoSchedule"}},
		{name: "what Cluster API lists is its own", node: content{labels: "node-role.kubernetes.io/a=", annotations: "capi/labels=node-role.kubernetes.io/a; capi/taints=gpu:NoSchedule", taints: "gpu=1:NoSchedule"}, want: content{labels: "node-role.kubernetes.io/a=", annotations: "capi/labels=node-role.kubernetes.io/a; capi/taints=gpu:NoSchedule", taints: "gpu=1:NoSchedule"}},
		{name: "what both list stays", node: content{labels: "team=a", annotations: "note=x; capi/labels=team; own/labels=team; capi/annotations=note; own/annotations=note; capi/taints=gpu:NoSchedule; own/taints=gpu=1:NoSchedule", taints: "gpu=1:NoSchedule"}, want: content{labels: "team=a", annotations: "note=x; capi/labels=team; capi/annotations=note; capi/taints=gpu:NoSchedule", taints: "gpu=1:NoSchedule"}},
		{name: "what Cluster API propagates as well goes to its list", node: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "node.cluster.x-k8s.io/b=1; capi/labels=node.cluster.x-k8s.io/z; own/labels=node.cluster.x-k8s.io/a; own/annotations=node.cluster.x-k8s.io/b"}, want: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "node.cluster.x-k8s.io/b=1; capi/labels=node.cluster.x-k8s.io/a,node.cluster.x-k8s.io/z; capi/annotations=node.cluster.x-k8s.io/b"}},
		{name: "a key that the Node no longer has does not", node: content{annotations: "own/labels=node.cluster.x-k8s.io/a"}},
		{name: "a taint to which somebody has given another value is theirs", node: content{annotations: "own/taints=gpu=1:NoSchedule", taints: "gpu=2:NoSchedule"}, want: content{taints: "gpu=2:NoSchedule"}},
		{name: "Cluster API's list is left in the form that it can read", node: content{annotations: "capi/taints=a=1:NoSchedule,b:NoExecute", taints: "a=1:NoSchedule"}, want: content{annotations: "capi/taints=a:NoSchedule,b:NoExecute", taints: "a=1:NoSchedule"}},
		{name: "the guard taint goes where we have added it", node: content{annotations: guarded, taints: uninitialized + ",a:NoSchedule"}, want: content{taints: "a:NoSchedule"}},
		{name: "a softened taint goes, and its mark", node: content{labels: softened, annotations: "own/taints=drain:NoSchedule", taints: "drain:NoSchedule"}},
		{name: "the guard taint stays where Cluster API's bootstrap provider has added it", node: content{taints: uninitialized}, want: content{taints: uninitialized}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			node := tc.node.node()
			released := inherit.Release(node, tc.keep)
			Expect(describe(released)).To(Equal(describe(tc.want.node())))
			Expect(node).To(Equal(tc.node.node()), "the input is not mutated")
			Expect(inherit.Release(released, tc.keep).Equal(released)).To(BeTrue(), "a second release changes nothing")
		})
	}
}
