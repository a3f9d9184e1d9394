// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// A Cluster moves from one management cluster to another and back, in the steps of clusterctl move: both have Heirloom, and
// the Nodes are always reconciled by the one that has the Cluster.
func TestMove(t *testing.T) {
	t.Parallel()
	here, there := sharedScene(t, both), newScene(t, stage.Options{})
	a := here.abroad(here.own("moving"))
	node := stage.Node(a.m.Name)
	here.Expect(a.Client.Create(here.ctx, node)).To(Succeed())
	here.expectInherited(a, node)

	there.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.m.Namespace}})
	a.family = here.move(a.family, there)
	there.expectServed(a, node, "there")
	a.family = there.move(a.family, here)
	here.expectServed(a, node, "here")

	here.get(a.md)
	here.update(a.md, func() {
		delete(a.md.Spec.Template.Labels, "node.cluster.x-k8s.io/served")
		delete(a.md.Spec.Template.Annotations, taint.AlwaysAnnotation)
	})
	here.eventuallyNode(a, node, func(g Gomega) {
		g.Expect(node.Labels).NotTo(HaveKey("node.cluster.x-k8s.io/served"), "what came on the way goes as well")
		g.Expect(taint.FormatList(node.Spec.Taints)).NotTo(ContainSubstring("annotated"))
	})
	here.eventually(a.m, func(g Gomega) { g.Expect(a.m.Labels).NotTo(HaveKey("node.cluster.x-k8s.io/served")) })
}

// expectServed changes something in this management cluster, and waits for the Node.
func (s *scene) expectServed(a abroad, node *corev1.Node, by string) {
	s.t.Helper()
	for _, object := range []client.Object{a.ms, a.m} { // which tells what came with the move from what is new
		s.eventually(object, func(g Gomega) { g.Expect(ours(object)).NotTo(BeEmpty(), "%T", object) })
	}
	s.get(a.md)
	s.update(a.md, func() { a.md.Spec.Template.Labels["node.cluster.x-k8s.io/served"] = by })
	s.eventuallyNode(a, node, func(g Gomega) { g.Expect(node.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/served", by)) })
	s.expectInherited(a, node)
	for _, object := range []client.Object{a.ms, a.m} { // a Node may be ahead of its Machine
		s.eventually(object, func(g Gomega) {
			g.Expect(object.GetLabels()).To(HaveKeyWithValue("node.cluster.x-k8s.io/served", by), "%T", object)
		})
	}
}

// move pauses the Cluster, creates everything anew in the other management cluster, without what only this one knows, and
// deletes it here; then the Cluster is resumed there.
func (s *scene) move(f family, to *scene) family {
	s.t.Helper()
	s.get(f.cluster)
	s.update(f.cluster, func() { f.cluster.Spec.Paused = ptr.To(true) })
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.cluster.Namespace, Name: f.cluster.Name + "-kubeconfig"}}
	for _, object := range []client.Object{f.md, f.ms, f.m, secret} {
		s.get(object)
	}
	moved := family{cluster: f.cluster.DeepCopy(), md: f.md.DeepCopy(), ms: f.ms.DeepCopy(), m: f.m.DeepCopy()}
	kubeconfig := secret.DeepCopy()
	bare := func(object client.Object) {
		object.SetUID("")
		object.SetResourceVersion("")
		object.SetCreationTimestamp(metav1.Time{})
		object.SetManagedFields(nil)
	}
	for _, object := range []client.Object{moved.cluster, kubeconfig, moved.md} {
		bare(object)
		to.create(object)
	}
	bare(moved.ms)
	moved.ms.OwnerReferences = []metav1.OwnerReference{stage.ControlledBy(moved.md, "MachineDeployment")}
	to.create(moved.ms)
	bare(moved.m)
	moved.m.OwnerReferences = []metav1.OwnerReference{stage.ControlledBy(moved.ms, "MachineSet")}
	to.create(moved.m)
	to.get(moved.cluster)
	before := moved.cluster.DeepCopy()
	moved.cluster.Status = clusterv1.ClusterStatus{Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: ptr.To(true)}}
	to.Expect(to.Client.Status().Patch(to.ctx, moved.cluster, client.MergeFrom(before))).To(Succeed())

	for _, object := range []client.Object{f.m, f.ms, f.md, secret, f.cluster} {
		s.Expect(s.Client.Delete(s.ctx, object)).To(Succeed())
	}
	to.get(moved.cluster)
	to.update(moved.cluster, func() { moved.cluster.Spec.Paused = nil })
	return moved
}
