// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/cluster"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

const (
	rackLabel = "node.cluster.x-k8s.io/rack"      // a kubelet may set it
	roleLabel = "node-role.kubernetes.io/machine" // a kubelet may not set it
)

// The Node on which Heirloom itself runs is deleted. Its kubelet registers it again through the webhook: the first stored version has the
// entries that its Machine declares and a kubelet may set, and a taint that keeps Pods away until all entries are there.
func TestTheKubeletsOwnNodeRegistersThroughTheWebhook(t *testing.T) {
	r := newRelease(t, "--set", "managementCluster=own/own")
	r.settle()
	owned := r.declareNode("own")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: cluster.NodeName}}
	r.eventuallyNode(node, func(g Gomega) { g.Expect(node.Labels).To(HaveKeyWithValue(rackLabel, "r1"), "by the loop") })
	before := node.UID

	recorder, err := controlplane.RecordVersions(r.ctx, shared.AdminConfig(), corev1.SchemeGroupVersion.WithResource("nodes"))
	r.Expect(err).NotTo(HaveOccurred())
	r.step("the Node is deleted and registers again", func() {
		r.Expect(shared.StopKubelet()).To(Succeed())
		r.Expect(shared.Delete(r.ctx, node)).To(Succeed())
		r.Expect(shared.StartKubelet(r.ctx)).To(Succeed())
		r.eventuallyNode(node, func(g Gomega) { g.Expect(node.UID).NotTo(Equal(before)) })
	})
	first := r.firstVersion(recorder, node.UID)
	r.Expect(first.Labels).To(HaveKeyWithValue(rackLabel, "r1"))
	r.Expect(first.Annotations).To(HaveKey(clusterv1.TaintsFromMachineAnnotation))
	r.Expect(first.Spec.ProviderID).To(Equal(owned.Spec.ProviderID))
	r.Expect(first.Spec.Taints).To(ContainElements(
		corev1.Taint{Key: "dedicated", Value: "ml", Effect: corev1.TaintEffectPreferNoSchedule},
		corev1.Taint{Key: "warming", Value: "up", Effect: corev1.TaintEffectPreferNoSchedule},
		clusterv1.NodeUninitializedTaint,
	))
	r.step("the Node is initialized and ready", func() {
		r.eventuallyNode(node, func(g Gomega) {
			g.Expect(node.Labels).To(HaveKey(roleLabel))
			g.Expect(taint.Find(node.Spec.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))).To(Equal(-1))
			g.Expect(node.Status.Conditions).To(ContainElement(And(
				HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
		})
		r.settle()
	})
	r.Expect(recorder.Stop()).To(Succeed())
}

// declareNode creates the Machine of the cluster's own Node, and all its owners.
func (r *release) declareNode(namespace string) *clusterv1.Machine {
	r.t.Helper()
	owner := stage.Cluster(namespace, namespace)
	md := stage.MachineDeployment(owner, namespace, stage.Declared{
		Labels: map[string]string{rackLabel: "r1", roleLabel: ""},
		// Neither taint keeps the Pods of other tests away.
		Taints:      stage.Taints(clusterv1.MachineTaintPropagationAlways, "dedicated=ml:PreferNoSchedule"),
		Annotations: map[string]string{taint.InitializeAnnotation: "warming=up:PreferNoSchedule"},
	})
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, owner, md} {
		r.Expect(shared.Create(r.ctx, object)).To(Succeed())
	}
	ms := stage.MachineSet(md, namespace)
	r.Expect(shared.Create(r.ctx, ms)).To(Succeed())
	machine := stage.Machine(ms, namespace)
	machine.Spec.ProviderID = cluster.ProviderID
	r.Expect(shared.Create(r.ctx, machine)).To(Succeed())
	return machine
}

// eventuallyNode waits until the Node, read anew each time, satisfies the check.
func (r *release) eventuallyNode(node *corev1.Node, check func(g Gomega)) {
	r.t.Helper()
	r.Eventually(func(g Gomega) {
		g.Expect(shared.Get(r.ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		check(g)
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}

// firstVersion returns the first stored version of a Node.
func (r *release) firstVersion(recorder *controlplane.Recorder, uid types.UID) *corev1.Node {
	r.t.Helper()
	var first *corev1.Node
	r.Eventually(func() bool {
		for _, version := range recorder.Versions("", cluster.NodeName) {
			if version.Object.GetUID() == uid {
				first = &corev1.Node{}
				r.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(version.Object.Object, first)).To(Succeed())
				return true
			}
		}
		return false
	}).WithTimeout(patience).WithPolling(polling).Should(BeTrue())
	return first
}
