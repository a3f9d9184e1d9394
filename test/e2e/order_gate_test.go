// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

const alwaysAnnotated, alwaysID = "annotated-always=yes:NoSchedule", "annotated-always:NoSchedule"

// switchOn switches the gate on and declares a typed taint at once, before Heirloom can know that it is on.
func (p *pair) switchOn(recorder *controlplane.Recorder) {
	w := p.together
	before, from := w.identities(), len(recorder.All())
	p.do(func(w *world) {
		w.Expect(w.managers.Switch(w.ctx, true)).To(Succeed())
		w.change(func(md *clusterv1.MachineDeployment) {
			md.Spec.Template.Spec.Taints = append(stage.Taints(clusterv1.MachineTaintPropagationAlways, "gpu=true:NoSchedule"),
				stage.Taints(clusterv1.MachineTaintPropagationOnInitialization, "late=yes:NoSchedule")...)
		})
	})
	w.eventuallyEachNode(func(g Gomega, node corev1.Node) {
		ids := alwaysID
		if taint.Find(node.Spec.Taints, taint.ID{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}) >= 0 {
			ids += ",gpu:NoSchedule"
		}
		tracked(g, node, ids, "")
	})
	p.expectEqual("the gate is on, and a taint is typed")
	w.expectKept(before, recorder.All()[from:])
}

// changeTypedTaints changes typed and annotated taints, rolls out and scales out.
func (w *world) changeTypedTaints() {
	w.change(func(md *clusterv1.MachineDeployment) {
		md.Spec.Template.Spec.Taints = stage.Taints(clusterv1.MachineTaintPropagationAlways, "tpu=true:NoSchedule")
		md.Spec.Template.Annotations[taint.AlwaysAnnotation] = alwaysAnnotated + ",annotated-more=yes:NoSchedule"
		md.Spec.Template.Spec.Bootstrap.DataSecretName = ptr.To("rolled-out")
		md.Spec.Replicas = ptr.To(int32(3))
	})
}

// dropAnnotatedTaint takes an annotated taint away, and a Machine.
func (w *world) dropAnnotatedTaint() {
	w.change(func(md *clusterv1.MachineDeployment) {
		md.Spec.Template.Annotations[taint.AlwaysAnnotation] = alwaysAnnotated
	})
	w.deleteMachine("workers-")
}

// switchOff switches the gate off. With a typed taint at the MachineDeployment, Cluster API refuses to change that, with and
// without Heirloom; what is only annotated holds nobody up.
func (p *pair) switchOff(recorder *controlplane.Recorder) {
	w := p.together
	w.eventuallyEachNode(func(g Gomega, node corev1.Node) {
		ids := alwaysID
		if workers(&node) {
			ids += ",npu:NoSchedule"
		}
		tracked(g, node, ids, "")
	})
	before, from := w.identities(), len(recorder.All())
	p.do(func(w *world) {
		w.Expect(w.managers.Switch(w.ctx, false)).To(Succeed())
		w.Expect(w.Client.Get(w.ctx, client.ObjectKeyFromObject(w.md), w.md)).To(Succeed())
		refused := w.md.DeepCopy()
		refused.Labels["any"] = "change"
		w.Expect(w.Client.Update(w.ctx, refused)).To(MatchError(ContainSubstring("MachineTaintPropagation is disabled")))
		w.change(func(md *clusterv1.MachineDeployment) {
			md.Spec.Template.Spec.Taints = nil
			md.Spec.Replicas = ptr.To(int32(4)) // Heirloom cannot know yet what is refused now
		})
		w.deleteMachine("single") // nobody but Heirloom has made a taint of this one typed, and nobody else takes it away
		w.lonely--
	})
	p.expectEqualChain("the gate is off, typed taints are removed, scale out")
	w.eventuallyEachNode(func(g Gomega, node corev1.Node) {
		g.Expect(taint.FormatList(node.Spec.Taints)).NotTo(Or(ContainSubstring("tpu"), ContainSubstring("npu")))
		tracked(g, node, "", alwaysAnnotated)
	})
	w.expectKept(before, recorder.All()[from:])
	for _, machine := range w.list(w.Client, machineKind) {
		w.Expect(machine.Object["spec"]).NotTo(HaveKey("taints"))
	}
	p.do(func(w *world) {
		w.change(func(md *clusterv1.MachineDeployment) {
			md.Spec.Template.Labels["team"] = "off"
			md.Spec.Template.Spec.Bootstrap.DataSecretName = ptr.To("off")
			md.Spec.Replicas = ptr.To(int32(2))
		})
		w.deleteMachine("set-")
	})
	p.expectEqualChain("roll out, scale in, delete a Machine, the gate is off")
	w.eventuallyEachNode(func(g Gomega, node corev1.Node) { tracked(g, node, "", alwaysAnnotated) })
	w.expectStill()
}

// expectKept expects that no Node that was there before and still is lost its taint in any version of it, and that nobody
// fought over it.
func (w *world) expectKept(before []string, versions []controlplane.Version) {
	w.t.Helper()
	still := slices.DeleteFunc(w.nodes(w), func(node corev1.Node) bool { return !slices.Contains(before, identity(node)) })
	w.Expect(still).NotTo(BeEmpty())
	for _, node := range still {
		states := contents(versions, node.Name)
		w.Expect(len(states)).To(BeNumerically("<", 10), "%s: %+v", node.Name, states)
		for _, state := range states {
			w.Expect(taint.FormatList(state.Taints)).To(ContainSubstring(alwaysAnnotated), "%s: %+v", node.Name, states)
		}
	}
}
