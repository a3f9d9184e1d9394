// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// infraMachine returns the InfraMachine of a Machine, which refers to it by the Machine's own name.
func infraMachine(m *clusterv1.Machine) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": "small"}}}
	u.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	u.SetKind("FakeMachine")
	u.SetNamespace(m.Namespace)
	u.SetName(m.Spec.InfrastructureRef.Name)
	u.SetLabels(map[string]string{clusterv1.ClusterNameLabel: m.Spec.ClusterName})
	u.SetOwnerReferences([]metav1.OwnerReference{stage.ControlledBy(m, "Machine")})
	return u
}

// lineage is a family with an InfraMachine and a Node.
type lineage struct {
	family
	infra *unstructured.Unstructured
}

// grow settles a lineage and waits until all of it carries what is declared. Users set labels of their own.
func (s *scene) grow(name string) lineage {
	s.t.Helper()
	l := lineage{family: s.settle(name, declared())}
	l.infra = infraMachine(l.m)
	s.admit(s.Client, l.infra)
	s.admit(s.Client, stage.Node(name))
	s.update(l.m, func() { l.m.Labels["user"] = "yes" })
	s.update(l.infra, func() { l.infra.SetLabels(merged(l.infra.GetLabels(), map[string]string{"user": "yes"})) })
	s.complete(l)
	return l
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// complete waits until the lineage carries what is declared.
func (s *scene) complete(l lineage) {
	s.t.Helper()
	s.eventually(l.m, func(g Gomega) {
		g.Expect(l.m.Labels).To(HaveKeyWithValue("team", "ml"))
		g.Expect(l.m.Annotations).To(HaveKey(taint.AlwaysAnnotation))
	})
	s.eventually(l.infra, func(g Gomega) { g.Expect(l.infra.GetLabels()).To(HaveKeyWithValue("team", "ml")) })
	node := stage.Node(l.m.Name)
	s.eventually(node, func(g Gomega) {
		g.Expect(taint.FormatList(node.Spec.Taints)).To(ContainSubstring("gpu=true:NoSchedule"))
	})
}

// drop removes everything from the template of the MachineDeployment but what its selector uses.
func (s *scene) drop(l lineage) {
	s.t.Helper()
	s.get(l.md)
	s.update(l.md, func() {
		l.md.Spec.Template.Labels = maps.Clone(l.md.Spec.Selector.MatchLabels)
		l.md.Spec.Template.Annotations, l.md.Spec.Template.Spec.Taints = nil, nil
	})
}

// expectDropped waits until nothing of what was declared is left in the lineage, and all that users set is.
func (s *scene) expectDropped(l lineage, touch bool) {
	s.t.Helper()
	node := stage.Node(l.m.Name)
	for _, object := range []client.Object{l.ms, l.m, l.infra, node} {
		s.Eventually(func(g Gomega) {
			s.get(object)
			if touch {
				s.update(object, func() {
					object.SetLabels(merged(object.GetLabels(), map[string]string{touched: object.GetResourceVersion()}))
				})
			}
			g.Expect(object.GetLabels()).NotTo(HaveKey("team"))
			g.Expect(object.GetLabels()).NotTo(HaveKey("node.cluster.x-k8s.io/pool"))
			g.Expect(object.GetAnnotations()).NotTo(HaveKey("note"))
			g.Expect(object.GetAnnotations()).NotTo(HaveKey("node.cluster.x-k8s.io/note"))
			g.Expect(ours(object)).To(BeEmpty())
		}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	}
	s.get(l.ms)
	s.Expect(l.ms.Spec.Template.Labels).To(Equal(l.ms.Spec.Selector.MatchLabels))
	s.Expect(l.ms.Spec.Template.Annotations).To(BeEmpty())
	s.Expect(l.ms.Spec.Template.Spec.Taints).To(BeEmpty())
	s.Expect(l.m.Spec.Taints).To(BeEmpty())
	s.Expect(l.m.Labels).To(HaveKeyWithValue("user", "yes"))
	s.Expect(l.infra.GetLabels()).To(HaveKeyWithValue("user", "yes"))
	s.Expect(taint.FormatList(node.Spec.Taints)).NotTo(ContainSubstring("gpu"))
}

// What leaves the owner while the program is away leaves the children when it is back.
func TestRemovalWhileAway(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{})
	l := s.grow("away")
	s.Expect(s.StopHeirloom()).To(Succeed())
	s.drop(l)
	s.Expect(s.StartHeirloom(s.ctx)).To(Succeed())
	s.expectDropped(l, false)
}

// The same through admission alone, after a restart: nothing is kept in memory that matters.
func TestRemovalByAdmissionAfterARestart(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutLoop: true, FailClosed: true})
	l := s.grow("restarted")
	s.Expect(s.StopHeirloom()).To(Succeed())
	s.Expect(s.StartHeirloom(s.ctx)).To(Succeed())
	s.drop(l)
	s.expectDropped(l, true)
}

// A restore creates objects anew, without managed fields and owner references, in a paused Cluster. Controllers adopt them
// once it is resumed. What the owner drops then leaves the children all the same, and what users had set stays.
func TestRemovalAfterARestore(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, both)
	l := s.grow(s.own("restored"))
	s.restore(l, true)
	s.Eventually(func(g Gomega) {
		for _, object := range []client.Object{l.ms, l.m, l.infra} {
			s.get(object)
			g.Expect(ours(object)).To(ContainSubstring("f:team"), "%T", object)
		}
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed(), "what the objects carry is ours again")
	s.drop(l)
	s.expectDropped(l, false)
}

// A restore through admission alone: the objects come back with owner references, as clusterctl move has it.
func TestRemovalByAdmissionAfterARestore(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, admission)
	l := s.grow(s.own("moved"))
	s.restore(l, false)
	s.drop(l)
	s.expectDropped(l, true)
}

// An object may lose its managed fields also while it lives.
func TestRemovalAfterManagedFieldsWereCleared(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, both)
	l := s.grow(s.own("cleared"))
	for _, object := range []client.Object{l.ms, l.m, l.infra} {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"managedFields":[{}]}}`))
		s.Expect(s.Client.Patch(s.ctx, object, patch)).To(Succeed())
		s.eventually(object, func(g Gomega) { g.Expect(ours(object)).To(ContainSubstring("f:team"), "%T", object) })
	}
	s.drop(l)
	s.expectDropped(l, false)
}

// restore deletes MachineSet, Machine and InfraMachine and creates them again from a backup. Without owner references they
// are adopted later, as Cluster API does it.
func (s *scene) restore(l lineage, pausedAndOrphaned bool) {
	s.t.Helper()
	s.get(l.cluster)
	s.update(l.cluster, func() { l.cluster.Spec.Paused = ptr.To(pausedAndOrphaned) })
	owner := client.Object(l.md)
	kind := "MachineDeployment"
	var adoptions []func()
	for _, object := range []client.Object{l.ms, l.m, l.infra} {
		s.get(object)
		s.Expect(s.Client.Delete(s.ctx, object)).To(Succeed())
		object.SetManagedFields(nil)
		object.SetResourceVersion("")
		object.SetUID("")
		object.SetCreationTimestamp(metav1.Time{})
		adopted := []metav1.OwnerReference{stage.ControlledBy(owner, kind)}
		object.SetOwnerReferences(adopted)
		if pausedAndOrphaned {
			object.SetOwnerReferences(nil)
		}
		s.Expect(s.Client.Create(s.ctx, object, client.FieldOwner("restore"))).To(Succeed())
		of := object.DeepCopyObject().(client.Object)
		parent, parentKind := owner, kind
		adoptions = append(adoptions, func() {
			s.get(of)
			s.update(of, func() { of.SetOwnerReferences([]metav1.OwnerReference{stage.ControlledBy(parent, parentKind)}) })
		})
		owner, kind = of, map[client.Object]string{l.ms: "MachineSet", l.m: "Machine", l.infra: ""}[object]
	}
	if pausedAndOrphaned {
		s.update(l.cluster, func() { l.cluster.Spec.Paused = ptr.To(false) })
		for _, adopt := range adoptions {
			adopt()
		}
	}
}
