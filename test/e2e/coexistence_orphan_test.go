// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// addLonely creates a MachineSet and a Machine that nobody owns, with what their owners would have declared, and two more that
// are adopted: a Machine by that MachineSet, and an empty MachineSet by the MachineDeployment. Their names begin with a prefix.
func (w *world) addLonely(prefix string, d stage.Declared) {
	w.t.Helper()
	empty := w.orphanSet(prefix+"empty", 0)
	w.create(empty)
	w.expectOwned(empty, "MachineDeployment")

	set := w.orphanSet(prefix+"set", 2)
	own := map[string]string{clusterv1.ClusterNameLabel: plain, "set": prefix + "lonely"}
	set.Labels, set.Spec.Selector.MatchLabels = own, own
	set.Spec.Template.Labels, set.Spec.Template.Annotations = maps.Clone(d.Labels), d.Annotations
	maps.Copy(set.Spec.Template.Labels, own)
	set.Spec.Template.Spec.Taints = d.Taints
	// First, so that it counts when the MachineSet comes; the Cluster adopts only what stands alone.
	adopted := w.addMachine(set, prefix+"adopted", stage.Declared{Labels: own})
	w.expectOwned(adopted, "Cluster")
	w.expectInitialized(adopted)
	w.create(set)
	w.expectOwned(adopted, "MachineSet")

	single := d
	single.Labels = map[string]string{clusterv1.ClusterNameLabel: plain, "team": "ml"}
	w.addMachine(set, prefix+"single", single)
	w.lonely += 3
}

// dropLonely deletes what addLonely has created and nobody has adopted.
func (w *world) dropLonely(prefix string) {
	w.t.Helper()
	set, single := &clusterv1.MachineSet{}, &clusterv1.Machine{}
	set.Namespace, set.Name, single.Namespace, single.Name = "fleet", prefix+"set", "fleet", prefix+"single"
	for _, object := range []client.Object{set, single} {
		w.Expect(w.Client.Delete(w.ctx, object)).To(Succeed())
	}
	w.expectGone(set)
	w.expectGone(single)
	w.lonely -= 3
}

// orphanSet returns a MachineSet that the MachineDeployment selects and does not own.
func (w *world) orphanSet(name string, replicas int32) *clusterv1.MachineSet {
	set := stage.MachineSet(w.md, name)
	set.OwnerReferences, set.Spec.Replicas = nil, ptr.To(replicas)
	set.Spec.Template.Spec.InfrastructureRef.Kind, set.Spec.Template.Spec.InfrastructureRef.Name = "FakeMachineTemplate", "small"
	return set
}

// addMachine creates a Machine that nobody owns.
func (w *world) addMachine(set *clusterv1.MachineSet, name string, d stage.Declared) *clusterv1.Machine {
	w.t.Helper()
	w.create(provided("FakeMachine", name, map[string]any{}))
	machine := stage.Machine(set, name)
	machine.OwnerReferences, machine.Labels, machine.Annotations = nil, d.Labels, d.Annotations
	machine.Spec.ProviderID, machine.Spec.InfrastructureRef.Name, machine.Spec.Taints = "", name, d.Taints
	w.create(machine)
	return machine
}

// expectInitialized expects that Cluster API has written to a Machine's Node once. It propagates taints for the initialization in
// that write only, so what a Machine is given later, by a MachineSet that adopts it, is not for its Node.
func (w *world) expectInitialized(machine *clusterv1.Machine) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		node := &corev1.Node{}
		g.Expect(w.workload.Client.Get(w.ctx, client.ObjectKey{Name: machine.Name}, node)).To(Succeed())
		g.Expect(node.Annotations).To(HaveKeyWithValue(clusterv1.MachineAnnotation, machine.Name))
	}).Should(Succeed())
}

// expectOwned expects that an object gets an owner of this kind.
func (w *world) expectOwned(object client.Object, by string) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		g.Expect(w.Client.Get(w.ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		g.Expect(object.GetOwnerReferences()).To(ContainElement(HaveField("Kind", by)))
	}).Should(Succeed())
}
