// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// A plan names the entries that the write adds, removes, and puts back. Stored is the Node before an update that admission sees.
func TestChangesOfAWrite(t *testing.T) {
	const pool, note, lists = "node.cluster.x-k8s.io/pool", "node.cluster.x-k8s.io/note", "capi/labels=node.cluster.x-k8s.io/pool; capi/annotations=node.cluster.x-k8s.io/note; capi/taints=t:NoSchedule"
	declares := content{labels: pool + "=1", annotations: note + "=2", taints: "t=3:NoSchedule"}
	whole := content{labels: declares.labels, annotations: note + "=2; " + lists, taints: declares.taints}
	all := []string{`label "` + pool + `"`, `annotation "` + note + `"`, `taint "t=3:NoSchedule"`}
	for _, tc := range []struct {
		name                 string
		machine, node        content
		stored               *content
		added, removed, kept []string
	}{
		{name: "nothing"},
		{name: "new entries are added", machine: declares, added: all},
		{name: "lost entries are removed", node: whole, removed: all},
		{name: "entries that stay are neither", machine: declares, node: whole},
		{name: "entries that the lists name and the Node lacks were removed", machine: declares, node: content{annotations: lists}, added: all, kept: all},
		{name: "another value may be an owner's change", machine: declares, node: content{labels: pool + "=0", annotations: note + "=0; " + lists, taints: "t=0:NoSchedule"}, added: all},
		{name: "an update that removes entries", machine: declares, node: content{annotations: lists}, stored: &whole, added: all, kept: all},
		{name: "an update that changes values", machine: declares, node: content{labels: pool + "=0", annotations: note + "=0; " + lists, taints: "t=0:NoSchedule"}, stored: &whole, added: all, kept: all},
		{name: "an update before which the Node had other values", machine: declares, node: content{annotations: lists}, stored: &content{labels: pool + "=0", taints: "t=0:NoSchedule"}, added: all},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, turn := NewWithT(t), inherit.Turn{}
			if tc.stored != nil {
				stored := tc.stored.node()
				turn.Stored = &stored
			}
			plan := inherit.Policy{}.PlanNode(old(tc.node.initialized()), inherit.SourceOfMachine(tc.machine.machine()), turn)
			g.Expect(named(plan.Added)).To(Equal(tc.added))
			g.Expect(named(plan.Removed)).To(Equal(tc.removed))
			g.Expect(named(plan.Kept)).To(Equal(tc.kept))
			again := inherit.Policy{}.PlanNode(plan.Node.Written(plan.Result), inherit.SourceOfMachine(tc.machine.machine()), turn)
			g.Expect(slices.Concat(again.Added, again.Removed, again.Kept)).To(BeEmpty())
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
			plan, got := inherit.Policy{}.PlanNode(old(tc.node.node()), inherit.SourceOfMachine(tc.machine.machine()), inherit.Turn{}), []string(nil)
			for _, id := range plan.Unprotected {
				got = append(got, id.String())
			}
			NewWithT(t).Expect(got).To(Equal(tc.want))
			NewWithT(t).Expect(plan.Written().Unprotected).To(BeEmpty())
		})
	}
}

func TestUnlabeled(t *testing.T) {
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
			plan := policy.PlanNode(old(tc.node.node()), inherit.SourceOfMachine(tc.machine.machine()), inherit.Turn{})
			NewWithT(t).Expect(plan.Unlabeled).To(Equal(tc.want))
			NewWithT(t).Expect(plan.Written().Unlabeled).To(BeFalse())
		})
	}
}

func TestBrokenTracking(t *testing.T) {
	g := NewWithT(t)
	g.Expect(inherit.BrokenTracking(content{annotations: "capi/taints=t:NoSchedule; own/taints=u=1:NoExecute"}.node())).To(Succeed())
	expectProblem(t, inherit.BrokenTracking(content{annotations: "capi/taints=???"}.node()), "cluster.x-k8s.io/taints-from-machine")
	expectProblem(t, inherit.BrokenTracking(content{annotations: "own/taints=???"}.node()), "heirloom.dev/taints-from-machine")
}

func TestCleanUp(t *testing.T) {
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
		{name: "a softened taint goes", node: content{annotations: "own/taints=drain:NoSchedule", taints: "drain:NoSchedule"}},
		{name: "the guard taint stays where Cluster API's bootstrap provider has added it", node: content{taints: uninitialized}, want: content{taints: uninitialized}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			node := tc.node.node()
			cleaned := inherit.CleanUp(node, tc.keep)
			Expect(describe(cleaned)).To(Equal(describe(tc.want.node())))
			Expect(node).To(Equal(tc.node.node()), "the input is not mutated")
			Expect(inherit.CleanUp(cleaned, tc.keep).Equal(cleaned)).To(BeTrue(), "a second cleanup changes nothing")
		})
	}
}
