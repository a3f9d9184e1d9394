// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// Objects that are older than Heirloom are reconciled by the loop, and the API server goes on when Heirloom is gone.
func TestBeforeAndAfterHeirloom(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutProgram: true})
	f := s.settle("early", declared())
	node := stage.Node("early")
	s.create(node)
	s.Expect(f.m.Labels).NotTo(HaveKey("team"), "nobody answers the webhook, and the API server goes on")

	s.Expect(s.StartHeirloom(s.ctx)).To(Succeed())
	s.eventually(f.m, func(g Gomega) { g.Expect(f.m.Labels).To(HaveKey("team")) })
	s.eventually(node, func(g Gomega) {
		g.Expect(taint.FormatList(node.Spec.Taints)).To(ContainSubstring("gpu=true:NoSchedule"))
		g.Expect(node.Labels).To(HaveKey("node-role.kubernetes.io/worker"))
	})

	s.Expect(s.StopHeirloom()).To(Succeed())
	s.update(f.m, func() { delete(f.m.Labels, "team") })
	s.Expect(f.m.Labels).NotTo(HaveKey("team"))
	s.Expect(s.kubelet("late").Create(s.ctx, stage.Node("late"))).To(Succeed())
	s.Expect(s.StartHeirloom(s.ctx)).To(Succeed())
	s.eventually(f.m, func(g Gomega) { g.Expect(f.m.Labels).To(HaveKey("team")) })
}

// Objects that are paused, opted out or of a paused Cluster are left alone, and reconciled when that ends.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	name := s.own("alone")
	f := s.settleIn(name, name, declared())
	s.update(f.cluster, func() { f.cluster.Spec.Paused = new(true) })
	s.Eventually(func(g Gomega) {
		s.get(f.m)
		s.update(f.m, func() { delete(f.m.Labels, "team") })
		g.Expect(f.m.Labels).NotTo(HaveKey("team"))
	}).WithTimeout(patience).Should(Succeed(), "the Cluster is paused")
	s.get(f.cluster)
	s.update(f.cluster, func() { f.cluster.Spec.Paused = new(false) })
	s.eventually(f.m, func(g Gomega) { g.Expect(f.m.Labels).To(HaveKey("team")) })

	for _, leave := range []metav1.ObjectMeta{
		{Labels: map[string]string{inherit.IgnoreLabel: ""}},
		{Annotations: map[string]string{clusterv1.PausedAnnotation: "true"}},
	} {
		machine := stage.Machine(f.ms, "left-alone")
		for key, value := range leave.Labels {
			machine.Labels[key] = value
		}
		machine.Annotations = leave.Annotations
		s.create(machine)
		s.Expect(machine.Labels).NotTo(HaveKey("team"))
		s.Expect(s.Client.Delete(s.ctx, machine)).To(Succeed())
	}
}

// Reserved and invalid taints are refused with their field paths, typed and annotated.
func TestReservedTaintsAreRefused(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	f := s.settle(s.own("refused"), stage.Declared{})
	always := clusterv1.MachineTaintPropagationAlways
	for _, tc := range []struct {
		name     string
		declared stage.Declared
		path     string
	}{
		{"typed and reserved", stage.Declared{Taints: stage.Taints(always, "node.cluster.x-k8s.io/uninitialized:NoSchedule")}, "spec.template.spec.taints[0].key"},
		{"typed control plane key on a worker", stage.Declared{Taints: stage.Taints(always, "node-role.kubernetes.io/control-plane:NoSchedule")}, "spec.template.spec.taints[0].key"},
		{"annotated and reserved", stage.Declared{Annotations: map[string]string{taint.AlwaysAnnotation: "node.kubernetes.io/unreachable:NoExecute"}}, "spec.template.metadata.annotations[taints.heirloom.dev/always]"},
		{"annotated and unreadable", stage.Declared{Annotations: map[string]string{taint.InitializeAnnotation: "gpu"}}, "spec.template.metadata.annotations[taints.heirloom.dev/initialize]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.in(t)
			err := s.Client.Create(s.ctx, stage.MachineDeployment(f.cluster, "bad", tc.declared))
			s.Expect(apierrors.IsInvalid(err)).To(BeTrue(), "got %v", err)
			s.Expect(err).To(MatchError(ContainSubstring(tc.path)))
		})
	}
}

// Bad input never stops a write.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	f := s.settle(s.own("bad"), declared())

	t.Run("more labels than a Node has room for", func(t *testing.T) {
		s := s.in(t)
		machine := stage.Machine(f.ms, f.m.Name+"-crowded")
		// Their record alone takes more than the 256 KiB that all annotations of an object may have.
		for i := range 1_300 {
			machine.Labels[fmt.Sprintf("%s.node.cluster.x-k8s.io/label-%d", strings.Repeat("long.", 35)+"x", i)] = ""
		}
		s.create(machine)
		node := stage.Node(machine.Name)
		s.Expect(s.kubelet(node.Name).Create(s.ctx, node)).To(Succeed(), "no Node may ever fail to register")
		s.eventually(node, func(g Gomega) {
			g.Expect(taint.FormatList(node.Spec.Taints)).To(ContainSubstring("gpu=true:NoSchedule"))
		})
		s.expectEvent("NotInherited", "Machine", machine.Name, ContainSubstring("a Node has no room for all of them"))
	})
	t.Run("broken tracking annotations", func(t *testing.T) {
		s := s.in(t)
		node := stage.Node(f.m.Name)
		node.Annotations = map[string]string{
			clusterv1.LabelsFromMachineAnnotation: ",,x,=,\n,", clusterv1.AnnotationsFromMachineAnnotation: "\x00,",
			clusterv1.TaintsFromMachineAnnotation: "a:b:c,=,:::", inherit.TaintsFromMachineAnnotation: "}{",
		}
		node.Spec.Taints = []corev1.Taint{{Key: "foreign", Effect: corev1.TaintEffectNoSchedule}}
		s.create(node)
		s.eventually(node, func(g Gomega) {
			g.Expect(taint.FormatList(node.Spec.Taints)).To(And(ContainSubstring("foreign:NoSchedule"), ContainSubstring("gpu=true:NoSchedule")))
			g.Expect(node.Annotations).To(HaveKeyWithValue(clusterv1.TaintsFromMachineAnnotation, ContainSubstring("gpu:NoSchedule")))
		})
	})
}

// So many labels keep an API server busy: it gives up on a webhook that takes longer than two seconds. The write passes all the same, and
// what it could not bring comes later.
func TestTenThousandLabels(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{})
	f := s.settle("many", declared())
	many := map[string]string{}
	for i := range 10_000 {
		many[fmt.Sprintf("label-%d", i)] = "x"
	}
	s.get(f.md)
	s.update(f.md, func() {
		for key, value := range many {
			f.md.Spec.Template.Labels[key] = value
		}
	})
	set := stage.MachineSet(f.md, "more")
	s.create(set)
	s.Eventually(func(g Gomega) {
		s.get(set)
		g.Expect(len(set.Spec.Template.Labels)).To(BeNumerically(">", 10_000))
	}).WithTimeout(5 * patience).WithPolling(time.Second).Should(Succeed())
	s.get(f.md)
	s.update(f.md, func() {
		for key := range many {
			delete(f.md.Spec.Template.Labels, key)
		}
	})
	s.Eventually(func(g Gomega) {
		s.get(set)
		g.Expect(len(set.Spec.Template.Labels)).To(BeNumerically("<", 10))
	}).WithTimeout(5 * patience).WithPolling(time.Second).Should(Succeed())
}
