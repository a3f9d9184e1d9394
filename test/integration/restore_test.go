// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// A restore, like clusterctl move, creates objects again in a paused Cluster, without their managed fields, here also without owner
// references. When the Cluster is resumed, controllers adopt the objects. Then Heirloom owns its entries again: the children lose the
// entries that the owner drops, and keep the entries of users.
func TestRemovalAfterARestore(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	name := s.own("restored")
	f := s.settleIn(name, name, declared())
	infra := infraMachine(f.m)
	s.create(infra)
	lineage := []client.Object{f.ms, f.m, infra}
	inherits := func() {
		s.t.Helper()
		for _, object := range lineage {
			s.eventually(object, func(g Gomega) { g.Expect(ours(object)).To(ContainSubstring("f:team"), "%T", object) })
		}
	}
	inherits()
	s.get(f.cluster)
	s.update(f.cluster, func() { f.cluster.Spec.Paused = ptr.To(true) })
	for _, object := range lineage {
		s.update(object, func() { object.SetLabels(labels.Merge(object.GetLabels(), map[string]string{"user": "yes"})) })
		s.Expect(s.Client.Delete(s.ctx, object)).To(Succeed())
		object.SetManagedFields(nil)
		object.SetOwnerReferences(nil)
		object.SetResourceVersion("")
		object.SetUID("")
		s.Expect(s.Client.Create(s.ctx, object, client.FieldOwner("restore"))).To(Succeed())
		s.Expect(ours(object)).To(BeEmpty(), "heirloom owns no field of the restored %T", object)
	}
	s.update(f.cluster, func() { f.cluster.Spec.Paused = nil })
	for i, owner := range []metav1.OwnerReference{
		stage.ControlledBy(f.md, "MachineDeployment"), stage.ControlledBy(f.ms, "MachineSet"), stage.ControlledBy(f.m, "Machine"),
	} {
		s.update(lineage[i], func() { lineage[i].SetOwnerReferences([]metav1.OwnerReference{owner}) })
	}
	inherits()

	s.get(f.md)
	s.update(f.md, func() {
		f.md.Spec.Template.Labels = maps.Clone(f.md.Spec.Selector.MatchLabels)
		f.md.Spec.Template.Annotations, f.md.Spec.Template.Spec.Taints = nil, nil
	})
	for _, object := range lineage {
		s.eventually(object, func(g Gomega) {
			g.Expect(ours(object)).To(BeEmpty())
			g.Expect(object.GetLabels()).To(And(HaveKeyWithValue("user", "yes"), Not(HaveKey("team"))))
			g.Expect(object.GetAnnotations()).NotTo(HaveKey("note"))
		})
	}
	s.Expect(f.ms.Spec.Template.Labels).To(Equal(f.ms.Spec.Selector.MatchLabels))
	s.Expect(f.m.Spec.Taints).To(BeEmpty())
}
