// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

func TestRelease(t *testing.T) {
	for _, tc := range []struct {
		name       string
		node, want content
		keep       bool
	}{
		{name: "a Node without anything of ours stays as it is", node: content{labels: "a=1", annotations: "b=2", taints: "c:NoSchedule"}, want: content{labels: "a=1", annotations: "b=2", taints: "c:NoSchedule"}},
		{name: "what we list goes, with the lists", node: content{labels: "team=a,mine=1", annotations: "note=x; mine=1; own/labels=team; own/annotations=note; own/taints=gpu=1:NoSchedule", taints: "gpu=1:NoSchedule,mine:NoSchedule"}, want: content{labels: "mine=1", annotations: "mine=1", taints: "mine:NoSchedule"}},
		{name: "where values stay, only the lists go", keep: true, node: content{labels: "team=a", annotations: "note=x; own/labels=team; own/annotations=note; own/taints=gpu=1:NoSchedule", taints: "gpu=1:NoSchedule"}, want: content{labels: "team=a", annotations: "note=x", taints: "gpu=1:NoSchedule"}},
		{name: "what Cluster API lists is its own", node: content{labels: "node-role.kubernetes.io/a=", annotations: "capi/labels=node-role.kubernetes.io/a; capi/taints=gpu:NoSchedule", taints: "gpu=1:NoSchedule"}, want: content{labels: "node-role.kubernetes.io/a=", annotations: "capi/labels=node-role.kubernetes.io/a; capi/taints=gpu:NoSchedule", taints: "gpu=1:NoSchedule"}},
		{name: "what both list stays", node: content{labels: "team=a", annotations: "note=x; capi/labels=team; own/labels=team; capi/annotations=note; own/annotations=note; capi/taints=gpu:NoSchedule; own/taints=gpu=1:NoSchedule", taints: "gpu=1:NoSchedule"}, want: content{labels: "team=a", annotations: "note=x; capi/labels=team; capi/annotations=note; capi/taints=gpu:NoSchedule", taints: "gpu=1:NoSchedule"}},
		{name: "what Cluster API propagates as well goes to its list", node: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "node.cluster.x-k8s.io/b=1; capi/labels=node.cluster.x-k8s.io/z; own/labels=node.cluster.x-k8s.io/a; own/annotations=node.cluster.x-k8s.io/b"}, want: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "node.cluster.x-k8s.io/b=1; capi/labels=node.cluster.x-k8s.io/a,node.cluster.x-k8s.io/z; capi/annotations=node.cluster.x-k8s.io/b"}},
		{name: "where values stay, too", keep: true, node: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "own/labels=node.cluster.x-k8s.io/a"}, want: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "capi/labels=node.cluster.x-k8s.io/a"}},
		{name: "a key that the Node no longer has does not", node: content{annotations: "own/labels=node.cluster.x-k8s.io/a"}},
		{name: "a taint to which somebody has given another value is theirs", node: content{annotations: "own/taints=gpu=1:NoSchedule", taints: "gpu=2:NoSchedule"}, want: content{taints: "gpu=2:NoSchedule"}},
		{name: "Cluster API's list is left in the form that it can read", node: content{annotations: "capi/taints=a=1:NoSchedule,b:NoExecute", taints: "a=1:NoSchedule"}, want: content{annotations: "capi/taints=a:NoSchedule,b:NoExecute", taints: "a=1:NoSchedule"}},
		{name: "that there is such a list is what counts, if it is empty too", node: content{annotations: "capi/taints="}, want: content{annotations: "capi/taints="}},
		{name: "the guard taint goes where we have added it", node: content{annotations: guarded, taints: uninitialized + ",a:NoSchedule"}, want: content{taints: "a:NoSchedule"}},
		{name: "the guard taint goes also where values stay", keep: true, node: content{annotations: guarded, taints: uninitialized}},
		{name: "a softened taint goes, and its mark", node: content{labels: softened, annotations: "own/taints=drain:NoSchedule", taints: "drain:NoSchedule"}},
		{name: "it stays where Cluster API's bootstrap provider has", node: content{taints: uninitialized}, want: content{taints: uninitialized}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			node := tc.node.node()
			released := inherit.Release(node, tc.keep)
			Expect(describe(released)).To(Equal(describe(tc.want.node())))
			Expect(node).To(Equal(tc.node.node()), "the input is not mutated")
			Expect(inherit.Release(released, tc.keep).Equal(released)).To(BeTrue(), "there is nothing to do twice")
		})
	}
}
