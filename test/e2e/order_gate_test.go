// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// Cluster API's gate MachineTaintPropagation is switched on where Heirloom has tracked taints for a while, and off again.
// No Node loses a taint on the way, both go on to read what the other wrote, and what Heirloom makes of annotated taints
// while the gate is on keeps nobody from writing anything once it is off.
func TestGateSwitched(t *testing.T) {
	t.Parallel() // most of it is waiting
	p := pair{newWorld(t, false, clusterapi.Options{}), newWorld(t, true, clusterapi.Options{})}
	p.do(func(w *world) {
		w.deploy(2, inOrder())
		w.addLonely(inOrder())
	})
	expectEqual(p.alone, p.together, "create, the gate is off")
	const always, key = "annotated-always=yes:NoSchedule", "annotated-always:NoSchedule"
	p.together.eventuallyEachNode(func(g Gomega, node corev1.Node) { tracked(g, node, "", always) })

	recorder, err := controlplane.RecordVersions(p.together.ctx, p.together.workload.AdminConfig(), corev1.SchemeGroupVersion.WithResource("nodes"))
	p.together.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { p.together.Expect(recorder.Stop()).To(Succeed()) })
	p.switchOn(key, recorder)
	p.useTypedTaints()
	p.switchOff(always, recorder)
	for _, w := range []*world{p.alone, p.together} {
		w.Expect(w.read(filepath.Join(w.dir, "core.log"))).NotTo(ContainSubstring("invalid taint format"))
	}
}

// switchOn switches the gate on and declares a typed taint at once, before Heirloom can know that it is on.
func (p pair) switchOn(key string, recorder *controlplane.Recorder) {
	w := p.together
	w.t.Helper()
	before, from := w.identities(), len(recorder.All())
	p.do(func(w *world) {
		w.Expect(w.managers.Switch(w.ctx, true)).To(Succeed())
		w.change(func(md *clusterv1.MachineDeployment) {
			md.Spec.Template.Spec.Taints = append(stage.Taints(clusterv1.MachineTaintPropagationAlways, "gpu=true:NoSchedule"),
				stage.Taints(clusterv1.MachineTaintPropagationOnInitialization, "late=yes:NoSchedule")...)
		})
	})
	w.eventuallyEachNode(func(g Gomega, node corev1.Node) {
		ids := key
		if taint.Find(node.Spec.Taints, taint.ID{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}) >= 0 {
			ids += ",gpu:NoSchedule"
		}
		tracked(g, node, ids, "")
	})
	expectEqual(p.alone, w, "the gate is on, and a taint is typed")
	w.expectKept(before, recorder.All()[from:])
}

// useTypedTaints goes through the life of a MachineDeployment while the gate is on.
func (p pair) useTypedTaints() {
	p.do(func(w *world) {
		w.change(func(md *clusterv1.MachineDeployment) {
			md.Spec.Template.Spec.Taints = stage.Taints(clusterv1.MachineTaintPropagationAlways, "tpu=true:NoSchedule")
			md.Spec.Template.Annotations[taint.AlwaysAnnotation] = "annotated-always=yes:NoSchedule,annotated-more=yes:NoSchedule"
			md.Spec.Template.Spec.Bootstrap.DataSecretName = ptr.To("rolled-out")
			md.Spec.Replicas = ptr.To(int32(3))
		})
	})
	expectEqual(p.alone, p.together, "typed taints change, roll out, scale out")
	p.do(func(w *world) {
		w.change(func(md *clusterv1.MachineDeployment) {
			md.Spec.Template.Annotations[taint.AlwaysAnnotation] = "annotated-always=yes:NoSchedule"
		})
		w.deleteMachine("workers-")
	})
	expectEqual(p.alone, p.together, "an annotated taint goes, delete a Machine")
	p.together.eventuallyEachNode(func(g Gomega, node corev1.Node) {
		g.Expect(taint.FormatList(node.Spec.Taints)).NotTo(Or(ContainSubstring("gpu"), ContainSubstring("annotated-more")))
	})
	p.together.expectStill()
}

// switchOff switches the gate off. With a typed taint at the MachineDeployment, Cluster API refuses to change that, with and
// without Heirloom; what is only annotated holds nobody up.
func (p pair) switchOff(always string, recorder *controlplane.Recorder) {
	w := p.together
	w.t.Helper()
	before, from := w.identities(), len(recorder.All())
	p.do(func(w *world) {
		w.Expect(w.managers.Switch(w.ctx, false)).To(Succeed())
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
		g.Expect(taint.FormatList(node.Spec.Taints)).NotTo(ContainSubstring("tpu"))
		tracked(g, node, "", always)
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
	w.eventuallyEachNode(func(g Gomega, node corev1.Node) { tracked(g, node, "", always) })
	w.expectStill()
}

// expectKept expects that no Node that was there before and still is lost its taint in any version of it, and that nobody
// fought over it.
func (w *world) expectKept(before []string, versions []controlplane.Version) {
	w.t.Helper()
	still := slices.DeleteFunc(w.nodes(w), func(node corev1.Node) bool { return !slices.Contains(before, identity(node)) })
	w.Expect(still).NotTo(BeEmpty())
	for _, node := range still {
		states := lives(versions, node.Name)
		w.Expect(len(states)).To(BeNumerically("<", 10), "%s: %+v", node.Name, states)
		for _, state := range states {
			w.Expect(taint.FormatList(state.Taints)).To(ContainSubstring("annotated-always=yes:NoSchedule"), node.Name)
		}
	}
}
