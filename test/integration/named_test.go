// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// A label of a Machine reaches its Node while the Cluster names its key, stays there although a user removes it, and goes when the
// Cluster no longer names it. A list entry without an effect causes a warning.
func TestKeysNamedByAClusterReachNodes(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	const key = "named.example.com/center"
	name := s.own("named")
	s.settle(name, stage.Declared{Labels: map[string]string{key: "7"}})
	node := stage.Node(name)
	s.Expect(s.kubelet(name).Create(s.ctx, node)).To(Succeed())
	annotate := func(to string) (warnings string) {
		return s.byKubectl("annotate", "--overwrite", "--namespace", stage.Home, "cluster", stage.Home, inherit.SyncLabelsAnnotation+to)
	}

	s.Expect(annotate("=named.example.com/*,kubernetes.io/a,a b")).To(And(
		ContainSubstring(`"kubernetes.io/a" is not allowed (--per-cluster-sync-allowed)`), ContainSubstring(`"a b" is neither a key`)))
	s.eventually(node, func(g Gomega) { g.Expect(node.Labels).To(HaveKeyWithValue(key, "7")) })
	s.Expect(s.byKubectl("label", "node", name, key+"-")).To(ContainSubstring("was kept"))
	s.get(node)
	s.Expect(node.Labels).To(HaveKeyWithValue(key, "7"))

	s.Expect(annotate("-")).NotTo(ContainSubstring("Warning"))
	s.eventually(node, func(g Gomega) {
		g.Expect(node.Labels).NotTo(HaveKey(key))
		g.Expect(node.Annotations).NotTo(HaveKey(inherit.LabelsFromMachineAnnotation))
	})
}
