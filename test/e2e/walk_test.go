// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// From the chart to the Node, with Cluster API's managers: the declarations of a topology reach every Node and are removed again, Always
// taints stay, new Nodes have all entries, and no write needs Heirloom. Meanwhile, another Cluster moves from bootstrap configurations to
// declarations.
func TestWalk(t *testing.T) {
	w := newWorld(t, nil, "fleet")
	f, legacy := &fleet{world: w, namespace: "fleet"}, &fleet{world: w, namespace: "legacy"}
	var adoption sync.WaitGroup
	adoption.Go(legacy.adopt)
	f.build()
	f.expectBuilt()
	f.expectPromised("annotated-cluster", 30, "leader", "workers")
	const goes = "node.cluster.x-k8s.io/goes"
	for _, node := range f.allNodes() {
		f.Expect(node.GetLabels()).To(HaveKey(goes), node.GetName())
	}

	f.redeclare()
	f.expectPromised("annotated-changed", 31, "leader", "changed")
	f.Eventually(func(g Gomega) {
		for _, node := range f.allNodes() {
			g.Expect(node.GetLabels()).NotTo(HaveKey(goes), node.GetName())
			g.Expect(text(node.Object["spec"])).NotTo(ContainSubstring("annotated-cluster"), node.GetName())
		}
	}).Should(Succeed())
	f.dropTaints()
	f.expectPromised("annotated-changed", 31, "leader", "changed")
	scaled(2)(f)
	f.expectBuilt()
	f.expectPromised("annotated-changed", 31, "leader", "changed")
	adoption.Wait()
	if t.Failed() {
		t.FailNow() // the failure was in another goroutine
	}

	w.Expect(w.StopHeirloom()).To(Succeed())
	f.dropTaints()
	scaled(1)(f)
	f.expectBuilt()
	w.Expect(w.StartHeirloom(w.ctx)).To(Succeed())
	f.expectPromised("annotated-changed", 31, "leader", "changed")
}

// expectBuilt waits until the Cluster has everything that its topology declares.
func (f *fleet) expectBuilt() {
	f.t.Helper()
	f.Eventually(func(g Gomega) { f.built(g, f.allNodes()) }).Should(Succeed())
}

// dropTaints removes the annotated taints from all Nodes, as a user who does not know their source.
func (f *fleet) dropTaints() {
	f.t.Helper()
	for _, node := range f.allNodes() {
		before := node.DeepCopy()
		taints, _, _ := unstructured.NestedSlice(node.Object, "spec", "taints")
		left := slices.DeleteFunc(slices.Clone(taints), onlyHeirloom)
		f.Expect(len(left)).To(BeNumerically("<", len(taints)), node.GetName())
		f.Expect(unstructured.SetNestedSlice(node.Object, left, "spec", "taints")).To(Succeed())
		f.Expect(f.nodes.Patch(f.ctx, &node, client.MergeFrom(before))).To(Succeed())
	}
}
