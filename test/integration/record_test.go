// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// A kubelet may write each annotation of its Node, those too that say what came from the Machine. Nothing goes by its word that
// it could not take away itself, and nothing stays that it would like to keep. Nor can it opt its Node out.
func TestWhatAKubeletSaysCameFromItsMachine(t *testing.T) {
	t.Parallel()
	const quarantine, mine = "node-restriction.kubernetes.io/quarantine", "example.com/mine"
	s := sharedScene(t)
	f := s.settle(s.own("record"), declared())
	kubelet := s.kubelet(f.m.Name)
	node := stage.Node(f.m.Name)
	node.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: ""}
	s.Expect(kubelet.Create(s.ctx, node)).To(Succeed())
	s.eventually(node, func(g Gomega) {
		g.Expect(taint.FormatList(node.Spec.Taints)).To(And(ContainSubstring("warming=up:NoSchedule"), ContainSubstring("gpu=true:NoSchedule")),
			"it does not evade its OnInitialization taints by claiming to have had them")
		g.Expect(node.Labels).To(HaveKey("node-role.kubernetes.io/worker"))
		g.Expect(inherit.RecordOf(inherit.OfNode(node, time.Now())).Taints).NotTo(BeEmpty())
	})
	s.update(node, func() {
		node.Labels[quarantine], node.Labels[mine] = "yes", "yes"
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "quarantine", Effect: corev1.TaintEffectNoSchedule})
	})

	before := node.DeepCopy()
	s.Expect(writeAs(s.ctx, kubelet, node, func(node *corev1.Node) { node.Labels[inherit.RecordLabel] = "forged" })).To(MatchError(apierrors.IsForbidden, "forbidden"))
	s.Expect(writeAs(s.ctx, kubelet, node, func(node *corev1.Node) { delete(node.Labels, inherit.RecordLabel) })).To(MatchError(apierrors.IsForbidden, "forbidden"))
	s.Expect(writeAs(s.ctx, kubelet, node, func(node *corev1.Node) {
		for _, key := range []string{clusterv1.LabelsFromMachineAnnotation, inherit.LabelsFromMachineAnnotation} {
			node.Annotations[key] = quarantine + "," + mine
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
	s.Expect(node.Labels).To(HaveKey(quarantine))
	s.Expect(node.Spec.Taints).To(ConsistOf(before.Spec.Taints))

	s.Expect(writeAs(s.ctx, kubelet, node, func(node *corev1.Node) { node.Labels[inherit.IgnoreLabel] = "" })).To(Succeed())
	s.get(node)
	s.update(node, func() { // an administrator, in whose write webhooks could bring it back
		node.Spec.Taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return t.Key == "gpu" })
	})
	s.eventually(node, func(g Gomega) {
		g.Expect(taint.FormatList(node.Spec.Taints)).To(ContainSubstring("gpu=true:NoSchedule"))
	})
	s.Expect(node.Labels).To(HaveKey(inherit.IgnoreLabel), "it means nothing there")

	s.Expect(writeAs(s.ctx, kubelet, node, func(node *corev1.Node) {
		for _, key := range inherit.TrackingAnnotations {
			delete(node.Annotations, key)
		}
	})).To(Succeed())
	s.update(f.md, func() { f.md.Spec.Template.Labels, f.md.Spec.Template.Spec.Taints = nil, nil })
	s.eventually(node, func(g Gomega) {
		g.Expect(node.Labels).NotTo(HaveKey("node-role.kubernetes.io/worker"))
		g.Expect(taint.FormatList(node.Spec.Taints)).NotTo(ContainSubstring("gpu"))
	})
	s.Expect(node.Labels).To(HaveKey(quarantine))
}

// writeAs sends what changes in the Node as somebody else, who may not be allowed to.
func writeAs(ctx context.Context, c client.Client, node *corev1.Node, change func(*corev1.Node)) error {
	changed := node.DeepCopy()
	change(changed)
	return c.Patch(ctx, changed, client.MergeFrom(node))
}
