// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

// controlPlane returns a control plane with one Machine.
func controlPlane(set string) *unstructured.Unstructured {
	cp := named("ModernControlPlane", set)
	cp.SetLabels(map[string]string{clusterv1.ClusterNameLabel: clusterOf(set)})
	cp.Object["spec"] = map[string]any{"replicas": int64(1), "version": "v1.36.0", "machineTemplate": map[string]any{"spec": map[string]any{
		"infrastructureRef": map[string]any{"apiGroup": resources["FakeMachine"].Group, "kind": "FakeMachineTemplate", "name": clusterOf(set)},
	}}}
	return cp
}

// controlPlanes plays a provider of control planes. It copies labels, annotations and taints into a new Machine and its FakeMachine, and
// never changes them again. A failed step is tried again in the next second.
type controlPlanes struct {
	*World
	client client.Client
	made   int // the number of FakeMachines
}

// provideControlPlanes looks for work every second, until ctx is done.
func (w *World) provideControlPlanes(ctx context.Context) error {
	by, err := w.management.as(controlPlaneUser)
	if err != nil {
		return err
	}
	provider := &controlPlanes{World: w, client: by}
	for seen := -1; ctx.Err() == nil; sleep(ctx, time.Second) {
		writes := w.history.writes()
		if writes == seen {
			continue
		}
		done := true
		for _, cp := range w.management.objects("ModernControlPlane") {
			done = provider.reconcile(ctx, cp) && done
		}
		if done {
			seen = writes
		}
	}
	return nil
}

// reconcile takes the next step for a control plane, and reports whether no step is left.
func (p *controlPlanes) reconcile(ctx context.Context, cp *unstructured.Unstructured) bool {
	var machines []*unstructured.Unstructured
	for _, machine := range p.management.objects("Machine") {
		switch {
		case setOf(machine) != cp.GetName() || machine.GetDeletionTimestamp() != nil:
		case controllerOf(machine) == cp.GetUID():
			machines = append(machines, machine)
		default: // a garbage collector would delete it: its control plane was deleted
			_ = p.client.Delete(ctx, machine)
			return false
		}
	}
	for _, infra := range p.management.objects("FakeMachine") {
		if refs := infra.GetOwnerReferences(); setOf(infra) == cp.GetName() && len(refs) == 1 && refs[0].UID == cp.GetUID() && !p.hasMachine(infra) {
			_ = p.client.Create(ctx, p.machine(cp, infra.GetName()))
			return false
		}
	}
	replicas, _, _ := unstructured.NestedInt64(cp.Object, "spec", "replicas")
	switch surplus := len(machines) - int(replicas); {
	case surplus > 0:
		_ = p.client.Delete(ctx, machines[0])
	case surplus < 0:
		p.made++
		_ = p.client.Create(ctx, p.infraMachine(cp, fmt.Sprintf("%s-%d", cp.GetName(), p.made)))
	default:
		return true
	}
	return false
}

func (p *controlPlanes) hasMachine(infra *unstructured.Unstructured) bool {
	return slices.ContainsFunc(p.management.objects("Machine"), func(m *unstructured.Unstructured) bool { return m.GetName() == infra.GetName() })
}

func (p *controlPlanes) infraMachine(cp *unstructured.Unstructured, name string) *unstructured.Unstructured {
	infra := named("FakeMachine", name)
	copyTemplate(infra, cp)
	infra.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: cp.GetAPIVersion(), Kind: cp.GetKind(), Name: cp.GetName(), UID: cp.GetUID()}})
	infra.Object["spec"] = map[string]any{}
	return infra
}

func (p *controlPlanes) machine(cp *unstructured.Unstructured, name string) *clusterv1.Machine {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: fleet, Name: name}}
	copyTemplate(machine, cp)
	machine.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cp, cp.GroupVersionKind())}
	machine.Spec = clusterv1.MachineSpec{
		ClusterName: clusterOf(cp.GetName()), Version: "v1.36.0", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("bootstrap-data")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: resources["FakeMachine"].Group, Kind: "FakeMachine", Name: name},
		Taints:            machineTaints(templateOf(cp)),
	}
	return machine
}

// copyTemplate copies the labels and annotations that a control plane declares for its Machines.
func copyTemplate(to metav1.Object, cp *unstructured.Unstructured) {
	template := templateOf(cp)
	labels := map[string]string{
		clusterv1.ClusterNameLabel: clusterOf(cp.GetName()), clusterv1.MachineControlPlaneLabel: "", clusterv1.MachineControlPlaneNameLabel: cp.GetName(),
	}
	maps.Copy(labels, template.GetLabels())
	to.SetLabels(labels)
	to.SetAnnotations(template.GetAnnotations())
}

// copies remembers the entries of a copy that is not exact: see partial.
func (h *history) copies(w apiserver.Write, set string) {
	h.awaitsAdoption(w)
	if w.Before != nil || w.User != controlPlaneUser {
		return
	}
	declared := h.declares[set]["moderncontrolplanes"]
	changed := false
	if sources := h.topologies[set]; sources != nil { // Heirloom inherits from the control plane as it will be
		changed = changed || !maps.Equal(declared, inherited(merged(sources["clusterclasses"], sources["clusters"])))
	}
	for entry := range inherited(w.After) {
		changed = changed || !declared[entry] && !h.brought(w.After, entry)
	}
	for entry := range declared {
		changed = changed || !inherited(w.After)[entry] && !h.brought(w.After, entry) && (w.GVR.Resource == "machines" || !strings.HasPrefix(entry, "taint "))
	}
	for entry := range inherited(w.After) {
		if changed {
			h.partial[w.After.GetName()+" "+keyOf(entry)] = true
		}
	}
}

// awaitsAdoption remembers the copies that Heirloom has not adopted yet.
func (h *history) awaitsAdoption(w apiserver.Write) {
	name := w.GVR.Resource + " " + w.After.GetName()
	_, waits := h.unadopted[name]
	switch copied := w.Before == nil && w.User == controlPlaneUser; {
	case manages(w.After, heirloomUser):
		delete(h.unadopted, name)
	case waits || copied:
		h.unadopted[name] = w.After
	}
}

// spoils remembers that the copies of a template that Heirloom has not adopted yet are no exact copies any more, because it changes.
func (h *history) spoils(set string) {
	for _, object := range h.unadopted {
		if setOf(object) != set {
			continue
		}
		for entry := range inherited(object) {
			h.partial[object.GetName()+" "+keyOf(entry)] = true
		}
	}
}

// brought reports whether Heirloom has added or changed an entry in the create of an object, from live reads: the copy may still be exact.
// Admission that decides from a stale cache, because a live read fails, may spoil a copy.
func (h *history) brought(object *unstructured.Unstructured, entry string) bool {
	return h.takes() == calm && (owns(object, heirloomUser, keyOf(entry)) || strings.HasPrefix(entry, "taint ") &&
		slices.ContainsFunc(taint.Annotations, func(key string) bool { return owns(object, heirloomUser, key) }))
}
