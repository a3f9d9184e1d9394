// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// A label of a Machine reaches its Node while the Cluster names it, stays there although somebody removes it, and goes when the Cluster no longer
// names it. An entry that means nothing is warned about.
func TestKeysThatAClusterNames(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	const key = "named.example.com/center"
	name, cluster := s.own("named"), stage.Cluster(stage.Home, stage.Home)
	s.settle(name, stage.Declared{Labels: map[string]string{key: "7"}})
	node := stage.Node(name)
	s.Expect(s.kubelet(name).Create(s.ctx, node)).To(Succeed())
	kubeconfig := filepath.Join(s.dir, "admin.kubeconfig")
	s.Expect(s.WriteKubeconfig(kubeconfig, "admin", "system:masters")).To(Succeed())
	annotate := func(to string) (warnings string) {
		_, stderr, err := controlplane.Kubectl(s.ctx, kubeconfig, "annotate", "--overwrite", "--namespace", cluster.Namespace, "cluster", cluster.Name, inherit.SyncLabelsAnnotation+to)
		s.Expect(err).NotTo(HaveOccurred())
		return stderr
	}

	s.Expect(annotate("=named.example.com/*,kubernetes.io/a,a b")).To(And(
		ContainSubstring(`"kubernetes.io/a" is not allowed (--per-cluster-sync-allowed)`), ContainSubstring(`"a b" is neither a key`)))
	s.eventually(node, func(g Gomega) { g.Expect(node.Labels).To(HaveKeyWithValue(key, "7")) })
	_, stderr, err := controlplane.Kubectl(s.ctx, kubeconfig, "label", "node", name, key+"-")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(stderr).To(ContainSubstring("was kept"))
	s.get(node)
	s.Expect(node.Labels).To(HaveKeyWithValue(key, "7"))

	s.Expect(annotate("-")).NotTo(ContainSubstring("Warning"))
	s.eventually(node, func(g Gomega) {
		g.Expect(node.Labels).NotTo(HaveKey(key))
		g.Expect(node.Annotations).NotTo(HaveKey(inherit.LabelsFromMachineAnnotation))
	})
}
