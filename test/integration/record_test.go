// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// A kubelet may write every annotation of its Node, including the tracking annotations and the record, but not the label that belongs
// to the record. So forged annotations remove nothing that the kubelet cannot remove itself, and Heirloom restores the record.
func TestWhatAKubeletSaysCameFromItsMachine(t *testing.T) {
	t.Parallel()
	const quarantine = "node-restriction.kubernetes.io/quarantine"
	s := sharedScene(t)
	f := s.settle(s.own("record"), declared())
	kubelet, node := s.kubelet(f.m.Name), stage.Node(f.m.Name)
	s.Expect(kubelet.Create(s.ctx, node)).To(Succeed())
	s.eventually(node, func(g Gomega) {
		g.Expect(node.Labels).To(HaveKey("node-role.kubernetes.io/worker"))
		g.Expect(inherit.RecordOf(inherit.OfNode(node)).Taints).NotTo(BeEmpty())
	})
	s.update(node, func() {
		node.Labels[quarantine] = "yes"
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "quarantine", Effect: corev1.TaintEffectNoSchedule})
	})
	before := node.DeepCopy()
	writes := func(change func(node *corev1.Node)) error {
		changed := before.DeepCopy()
		change(changed)
		return kubelet.Patch(s.ctx, changed, client.MergeFrom(before))
	}

	forge := func(node *corev1.Node) { node.Labels[inherit.RecordLabel] = "forged" }
	remove := func(node *corev1.Node) { delete(node.Labels, inherit.RecordLabel) }
	s.Expect(writes(forge)).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
	s.Expect(writes(remove)).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
	s.Expect(writes(func(node *corev1.Node) {
		for _, key := range []string{clusterv1.LabelsFromMachineAnnotation, inherit.LabelsFromMachineAnnotation} {
			node.Annotations[key] = quarantine
		}
		for _, key := range []string{clusterv1.TaintsFromMachineAnnotation, inherit.TaintsFromMachineAnnotation} {
			node.Annotations[key] = "quarantine:NoSchedule"
		}
		node.Annotations[inherit.RecordAnnotation] = quarantine + ";quarantine:NoSchedule"
	})).To(Succeed())
	s.eventually(node, func(g Gomega) {
		g.Expect(node.Annotations).To(HaveKeyWithValue(inherit.RecordAnnotation, before.Annotations[inherit.RecordAnnotation]))
		g.Expect(node.Annotations[inherit.LabelsFromMachineAnnotation]).NotTo(ContainSubstring(quarantine))
	})
	s.Expect(node.Labels).To(Equal(before.Labels))
	s.Expect(node.Spec.Taints).To(ConsistOf(before.Spec.Taints))
}
