// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// A child that is created without entries has the declarations of its owner after the write that creates it, and an existing child gets them
// from the loop. This is the main promise on a real API server: test/sim/conformance covers each rule.
func TestChildrenInheritInTheCreatingWrite(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	d := declared()
	f := s.settle(s.own("family"), d)

	for key, value := range d.Labels {
		s.Expect(f.ms.Labels).To(HaveKeyWithValue(key, value))
		s.Expect(f.ms.Spec.Template.Labels).To(HaveKeyWithValue(key, value))
		s.Expect(f.m.Labels).To(HaveKeyWithValue(key, value))
	}
	for key, value := range d.Annotations {
		s.Expect(f.ms.Annotations).NotTo(HaveKey(key), "template annotations do not reach the MachineSet itself")
		s.Expect(f.ms.Spec.Template.Annotations).To(HaveKeyWithValue(key, value))
		s.Expect(f.m.Annotations).To(HaveKeyWithValue(key, value))
	}
	s.Expect(f.ms.Spec.Template.Spec.Taints).To(ConsistOf(d.Taints))
	s.Expect(f.m.Spec.Taints).To(ContainElements(d.Taints))

	node := stage.Node(f.m.Name)
	s.Eventually(func(g Gomega) { // until the webhook's cache has the Machine
		probe := node.DeepCopy()
		g.Expect(s.kubelet(node.Name).Create(s.ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Annotations).To(HaveKey(clusterv1.TaintsFromMachineAnnotation))
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	s.Expect(s.kubelet(node.Name).Create(s.ctx, node)).To(Succeed())
	s.Expect(taint.FormatList(node.Spec.Taints)).To(Equal("annotated=yes:NoSchedule,booting=yes:PreferNoSchedule," +
		"gpu=true:NoSchedule,node.cluster.x-k8s.io/uninitialized:NoSchedule,node.kubernetes.io/not-ready:NoSchedule,warming=up:NoSchedule"))
	s.Expect(node.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/pool", "gpu"))
	s.Expect(node.Labels).NotTo(HaveKey("node-role.kubernetes.io/worker"), "a kubelet may not set it")
	s.Expect(node.Annotations).To(HaveKeyWithValue("node.cluster.x-k8s.io/note", "for nodes"))
	s.Expect(node.Annotations).To(HaveKeyWithValue(clusterv1.LabelsFromMachineAnnotation, "node.cluster.x-k8s.io/pool"))

	s.update(node, func() { node.Labels["anything"] = "else" })
	s.Expect(node.Labels).To(And(
		HaveKeyWithValue("node-role.kubernetes.io/worker", ""),
		HaveKeyWithValue("node-restriction.kubernetes.io/z", "1"),
	), "the first privileged write adds the labels that the kubelet may not set")
	s.Expect(taint.Find(node.Spec.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))).To(Equal(-1))
	s.Expect(taint.Find(node.Spec.Taints, taint.ID{Key: "gpu", Effect: corev1.TaintEffectNoSchedule})).NotTo(Equal(-1))

	s.update(f.md, func() { f.md.Spec.Template.Labels["node.cluster.x-k8s.io/pool"] = "cpu" })
	s.eventually(node, func(g Gomega) { g.Expect(node.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/pool", "cpu")) })
}
