// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// A client that applies an object by server-side apply and applies the same again changes nothing, though the webhook has
// added to it in between: neither its resourceVersion nor who owns what.
func TestIdenticalReapplyLeavesTheObjectAlone(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	f := s.settle(s.own("reapply"), declared())
	// Finding out that Cluster API takes typed taints takes a moment, and the answer rightly leads to one more write.
	s.eventually(f.m, func(g Gomega) { g.Expect(f.m.Spec.Taints).To(ContainElement(HaveField("Key", "annotated"))) })
	config := func() runtime.ApplyConfiguration {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": clusterv1.GroupVersion.String(), "kind": "Machine",
			"metadata": map[string]any{
				"namespace": f.m.Namespace, "name": "applied", "labels": map[string]any{"mine": "yes", "team": "ml"},
				"ownerReferences": []any{map[string]any{
					"apiVersion": clusterv1.GroupVersion.String(), "kind": "MachineSet", "name": f.ms.Name,
					"uid": string(f.ms.UID), "controller": true, "blockOwnerDeletion": true,
				}},
			},
			"spec": map[string]any{
				"clusterName":       f.cluster.Name,
				"bootstrap":         map[string]any{"dataSecretName": "x"},
				"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "FakeMachine", "name": "fake"},
			},
		}}
		return client.ApplyConfigurationFromUnstructured(u)
	}
	apply := func() {
		s.Expect(s.Client.Apply(s.ctx, config(), client.FieldOwner("somebody"), client.ForceOwnership)).To(Succeed())
	}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: f.m.Namespace, Name: "applied"}}

	apply()
	s.get(machine)
	s.Expect(machine.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/pool", "gpu"))
	s.Expect(ours(machine)).To(And(ContainSubstring("f:node.cluster.x-k8s.io/pool"), Not(ContainSubstring("f:team"))),
		"what the request brought with the right value is its own")
	before := machine.DeepCopy()
	for range 3 {
		apply()
	}
	s.get(machine)
	s.Expect(cmp.Diff(before, machine)).To(BeEmpty())
	s.Consistently(func(g Gomega) {
		s.get(machine)
		g.Expect(machine.ResourceVersion).To(Equal(before.ResourceVersion))
		g.Expect(machine.ManagedFields).To(Equal(before.ManagedFields))
	}).WithTimeout(2*time.Second).Should(Succeed(), "neither the apply nor the loop writes")
}

// What the owner declares wins over another value, and says so; what only the user set stays; what leaves the owner
// leaves the children.
func TestOwnersAreAuthoritativeForWhatTheyDeclareOnly(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	f := s.settle(s.own("owner"), declared())
	node := stage.Node(f.m.Name)
	s.create(node)

	s.update(f.m, func() {
		f.m.Labels["team"] = "mine"
		f.m.Labels["user"] = "yes"
		delete(f.m.Annotations, "note")
	})
	s.Expect(f.m.Labels).To(And(HaveKeyWithValue("team", "ml"), HaveKeyWithValue("user", "yes")))
	s.Expect(f.m.Annotations).To(HaveKeyWithValue("note", "for humans"))

	s.update(node, func() { node.Labels["node.cluster.x-k8s.io/by-hand"] = "yes" })
	s.get(f.md)
	s.update(f.md, func() {
		delete(f.md.Spec.Template.Labels, "team")
		delete(f.md.Spec.Template.Labels, "node.cluster.x-k8s.io/pool")
		delete(f.md.Spec.Template.Annotations, "node.cluster.x-k8s.io/note")
		f.md.Spec.Template.Spec.Taints = nil
	})
	s.eventually(f.ms, func(g Gomega) {
		g.Expect(f.ms.Labels).NotTo(HaveKey("team"))
		g.Expect(f.ms.Spec.Template.Labels).NotTo(HaveKey("team"))
		g.Expect(f.ms.Spec.Template.Spec.Taints).To(BeEmpty())
	})
	s.eventually(f.m, func(g Gomega) {
		g.Expect(f.m.Labels).To(And(Not(HaveKey("team")), HaveKeyWithValue("user", "yes")))
		g.Expect(f.m.Annotations).NotTo(HaveKey("node.cluster.x-k8s.io/note"))
	})
	s.eventually(node, func(g Gomega) {
		g.Expect(node.Labels).To(And(Not(HaveKey("node.cluster.x-k8s.io/pool")), HaveKey("node.cluster.x-k8s.io/by-hand")))
		g.Expect(node.Annotations).NotTo(HaveKey("node.cluster.x-k8s.io/note"))
		for _, t := range node.Spec.Taints {
			g.Expect(t.Key).NotTo(Equal("gpu"))
		}
	})
}

// A value that another applier owns and the owner overrules is taken from that applier, as a forced apply does: its own
// next apply without force is a conflict that names us, not a silent fight.
func TestOverruledApplierSeesAConflict(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	f := s.settle(s.own("conflict"), declared())
	config := func() runtime.ApplyConfiguration {
		return client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": clusterv1.GroupVersion.String(), "kind": "MachineSet",
			"metadata": map[string]any{"namespace": f.ms.Namespace, "name": f.ms.Name, "labels": map[string]any{"team": "mine"}},
		}})
	}
	err := s.Client.Apply(s.ctx, config(), client.FieldOwner("somebody"))
	s.Expect(err).To(MatchError(ContainSubstring(`conflict with "heirloom"`)))
	s.Expect(s.Client.Apply(s.ctx, config(), client.FieldOwner("somebody"), client.ForceOwnership)).To(Succeed())
	s.get(f.ms)
	s.Expect(f.ms.Labels).To(HaveKeyWithValue("team", "ml"))
	for _, entry := range f.ms.ManagedFields {
		if entry.Manager == "somebody" {
			s.Expect(entry.FieldsV1.GetRawString()).NotTo(ContainSubstring("f:team"))
		}
	}
	s.Expect(ours(f.ms)).To(ContainSubstring("f:team"))
}

// Once Heirloom has found out that Cluster API takes typed taints, those that a Machine declares by annotation become
// typed as well, without anybody's write.
func TestAnnotatedTaintsBecomeTyped(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutProgram: true})
	f := s.settle("typed", stage.Declared{Annotations: map[string]string{taint.AlwaysAnnotation: "gpu=true:NoSchedule"}})
	s.Expect(s.StartHeirloom(s.ctx)).To(Succeed())
	s.eventually(f.m, func(g Gomega) {
		g.Expect(f.m.Spec.Taints).To(Equal(stage.Taints(clusterv1.MachineTaintPropagationAlways, "gpu=true:NoSchedule")))
	})
}
