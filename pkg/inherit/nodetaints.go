// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// declare finds the taints that the Node gets in this write, and the NoExecute taints that wait: these count as if they were not declared,
// or as if they were declared with the value that the Node has from an earlier declaration. After the Node's turn, a NoSchedule taint stands
// in for each until the Pods have left.
func (w *nodeWrite) declare() {
	w.typed, w.annotated, w.declared = w.from.typed, w.from.annotated, w.from.taints()
	w.gates = taint.Gates(w.from.Annotations)
	w.evicting = w.findEvicting()
	w.dropOnInitialization()
	if len(w.evicting) == 0 || w.turn.Eviction == EvictsNow || w.turn.Eviction == AsksPods && slices.Equal(w.turn.PodsLeft, w.evicting) {
		return
	}
	w.held = w.evicting
	why, standIns := DropWaiting, []clusterv1.MachineTaint(nil)
	if w.waitsForPods() {
		why, standIns = DropPods, w.standIns()
	}
	for _, t := range w.held {
		w.out.drop(Entry{taintKey, taint.IDOf(t).String(), true}, why, "", "")
	}
	w.typed, w.annotated = w.withoutHeld(w.typed), append(w.withoutHeld(w.annotated), standIns...)
	w.declared = taint.Merge(w.typed, w.annotated)
}

// waitsForPods reports whether the Node has its turn, and has to wait only for its Pods.
func (w *nodeWrite) waitsForPods() bool {
	return len(w.held) > 0 && (w.turn.Eviction == AsksPods || !w.node.Record.Softened.IsZero())
}

// findEvicting returns the declared NoExecute taints that a Node in use would get now. Adding such a taint or changing its value evicts
// Pods. An Always taint that the Node had from its Machine and that was taken away is not among them: it is put back at once.
func (w *nodeWrite) findEvicting() (evicting []corev1.Taint) {
	if w.initializes { // its Pods have only just started
		return nil
	}
	recorded := taint.ByID(slices.Concat(w.node.Record.Taints, w.node.taints[0], w.node.taints[1])) // ByID takes the first
	there, had := taint.ByID(w.node.Taints), map[taint.ID]corev1.Taint{}
	if w.turn.Stored != nil {
		had = taint.ByID(w.turn.Stored.Taints)
	}
	for _, t := range always(w.declared) {
		// If the Node has another value, the taint was taken away only if the record has the declared value: otherwise the owner may have
		// changed it.
		id := taint.IDOf(t)
		takenAway := has(recorded, id) && (!has(there, id) || t.Value != "" && same(recorded, t))
		if t.Effect == corev1.TaintEffectNoExecute && !takenAway && !same(there, t) && !same(had, t) {
			evicting = append(evicting, t)
		}
	}
	return evicting
}

// dropOnInitialization drops the OnInitialization taints of a Node that has been initialized.
func (w *nodeWrite) dropOnInitialization() {
	if w.initializes {
		return
	}
	for _, t := range w.declared {
		if id := taint.MachineID(t); taint.Initialize(t) {
			why := DropOnce
			if has(w.gates, id) && !w.mayBeClosed(id) {
				why = DropGateOpened
			}
			w.out.drop(Entry{taintKey, id.String(), true}, why, "", "")
		}
	}
}

// withoutHeld returns the taints without waiting taints, or with the values that the Node has from an earlier declaration.
func (w *nodeWrite) withoutHeld(declared []clusterv1.MachineTaint) (rest []clusterv1.MachineTaint) {
	held, recorded, there := taint.ByID(w.held), taint.ByID(w.node.Record.Taints), taint.ByID(w.node.Taints)
	for _, t := range declared {
		if id := taint.MachineID(t); has(held, id) {
			if !has(there, id) || !has(recorded, id) {
				continue
			}
			t.Value = there[id].Value
		}
		rest = append(rest, t)
	}
	return rest
}

// standIns returns a NoSchedule taint for each taint that waits for Pods. It counts as declared by annotation, so Heirloom records it, and
// removes it like any taint that is no longer declared. It gives way to another declaration, and to a taint of another writer on the Node.
func (w *nodeWrite) standIns() (standIns []clusterv1.MachineTaint) {
	recorded, there := taint.ByID(w.node.Record.Taints), taint.ByID(w.node.Taints)
	for _, t := range w.held {
		id := taint.ID{Key: t.Key, Effect: corev1.TaintEffectNoSchedule}
		isIt := func(other clusterv1.MachineTaint) bool { return taint.MachineID(other) == id }
		if foreign := has(there, id) && !has(recorded, id); !foreign && !slices.ContainsFunc(w.declared, isIt) {
			standIns = append(standIns, clusterv1.MachineTaint{
				Key: t.Key, Value: t.Value, Effect: id.Effect, Propagation: clusterv1.MachineTaintPropagationAlways,
			})
		}
	}
	return standIns
}

// taints implements rule 13: it returns the result with taints and with the annotations that track them.
func (w *nodeWrite) taints(result NodeState) NodeState {
	result.Annotations = mergeMaps(result.Annotations, nil)
	result.Taints = taint.Sync(w.node.Taints, w.declared, slices.Concat(w.node.Record.Taints, w.broughtBack()), !w.initializes)
	theirs, ours := taint.ByID(w.node.taints[0]), taint.ByID(w.node.taints[1])
	// Our annotation lists a typed taint that the Machine does not have yet, and keeps a taint that was declared by annotation until
	// Cluster API lists it. Until then Cluster API may not know the taint, and it removes from the Node all taints that its annotation
	// lists and it does not know.
	var typed []corev1.Taint
	extra := always(w.annotated)
	for _, t := range always(w.typed) {
		id := taint.IDOf(t)
		if w.from.taintIsAhead(id) || has(ours, id) && !has(theirs, id) && w.policy.ClusterAPITaints != PropagationDisabled {
			extra = append(extra, t)
		} else {
			typed = append(typed, t)
		}
	}
	typed = append(typed, w.leftToClusterAPI(result.Taints)...)
	// Cluster API can read only its own form, without values. If it does not read the annotation, values are added: they distinguish our
	// taint from a foreign taint with the same key and effect. But a list with the same taints in Cluster API's form stays: the gate may
	// have been turned on a moment ago, and Heirloom and Cluster API must not fight over the form.
	list := taint.FormatIDs(typed)
	if w.policy.ClusterAPITaints == PropagationDisabled && w.node.Annotations[clusterv1.TaintsFromMachineAnnotation] != list {
		list = taint.FormatList(typed)
	}
	result.Annotations[clusterv1.TaintsFromMachineAnnotation] = list
	setOrDelete(result.Annotations, TaintsFromMachineAnnotation, taint.FormatList(extra))
	return result
}

// leftToClusterAPI returns the taints that stay on the Node and in Cluster API's list although nobody declares them. Cluster API, whose cache
// was stale, has just brought them back, and will remove what its list has. Heirloom may not remove them itself: its record does not have
// them, and a kubelet may have written the list.
func (w *nodeWrite) leftToClusterAPI(result []corev1.Taint) (left []corev1.Taint) {
	if w.policy.ClusterAPITaints == PropagationDisabled {
		return nil
	}
	there, declared := taint.ByID(result), map[taint.ID]bool{}
	for _, t := range w.from.taints() {
		declared[taint.MachineID(t)] = true
	}
	for _, t := range w.node.taints[0] {
		if id := taint.IDOf(t); has(there, id) && !declared[id] {
			left = append(left, corev1.Taint{Key: t.Key, Effect: t.Effect})
		}
	}
	return left
}

// broughtBack returns the taints that an update in admission adds together with their entries in Cluster API's list. If the Machine does not
// declare such a taint, Cluster API's cache is stale: nothing would remove the taint once the result has another list.
func (w *nodeWrite) broughtBack() (back []corev1.Taint) {
	if w.turn.Stored == nil {
		return nil
	}
	before, listed := taint.ByID(w.turn.Stored.Taints), w.turn.Stored.Lists(taintKey, clusterv1.TaintsFromMachineAnnotation)
	for _, t := range w.node.taints[0] {
		if id := taint.IDOf(t); !has(before, id) && !listed.Has(id.String()) {
			back = append(back, corev1.Taint{Key: t.Key, Effect: t.Effect}) // with any value
		}
	}
	return back
}

// openGates finds the start-up gates that are closed on the Node, and removes the taints of gates that open, because the Node meets all
// their requirements. Gates close when the Node initializes, and are recorded in the first write of the loop: a
// taint that somebody else added later, or that was declared later, or with another value, stays.
func (w *nodeWrite) openGates(result NodeState) NodeState {
	w.closed, w.opened = nil, nil
	there, before := taint.ByID(result.Taints), taint.ByID(w.node.Taints)
	for _, t := range w.declared {
		id := taint.MachineID(t)
		gate, gated := w.gates[id]
		if !gated || !w.mayBeClosed(id) || !taint.Initialize(t) || !same(there, taint.ForNode(t)) {
			continue
		}
		if !w.turn.OpensGates || len(w.node.Lacks(gate, w.turn.Met)) > 0 {
			w.closed = append(w.closed, gate)
			continue
		}
		result.Taints = taint.Remove(result.Taints, id)
		if has(before, id) {
			w.opened = append(w.opened, id)
		}
	}
	return result
}

// mayBeClosed reports whether a gate is closed if the Node has its taint. A Node that the loop has never written may have the taint from a
// policy, which works also while Heirloom is down.
func (w *nodeWrite) mayBeClosed(id taint.ID) bool {
	return w.initializes || slices.Contains(w.node.Record.Gates, id.String()) || !w.node.recorded && !forged(w.stored, w.from)
}

// Lacks returns the requirements of a gate that the Node does not meet. met are requirements that other objects have been seen to meet.
func (n Node) Lacks(gate taint.Gate, met sets.Set[taint.Requirement]) []taint.Requirement {
	status := n.Object.Status
	return slices.DeleteFunc(slices.Clone(gate.Until), func(r taint.Requirement) bool {
		switch r.Kind {
		case taint.Condition:
			return slices.ContainsFunc(status.Conditions, func(c corev1.NodeCondition) bool { return string(c.Type)+"="+string(c.Status) == r.Name })
		case taint.Allocatable:
			amount := status.Allocatable[corev1.ResourceName(r.Name)]
			return amount.Sign() > 0
		}
		return met.Has(r)
	})
}

// guard keeps workload off a worker Node until it has its restricted labels, with the taint node.cluster.x-k8s.io/uninitialized. The first
// privileged write, which also sets the labels, removes the taint (docs/design.md §4). An API server may ask twice about the same create,
// once for each webhook or policy: a taint that the first answer added is still ours in the second.
func (w *nodeWrite) guard(result NodeState) NodeState {
	claimed := w.stored.Annotations
	switch present := isUninitialized(w.node.Taints); {
	case !w.turn.Registering && has(claimed, UninitializedAnnotation) && !w.from.withheld:
		result.Taints = taint.Remove(result.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))
		delete(result.Annotations, UninitializedAnnotation)
	case !w.turn.Registering || w.from.ControlPlane:
	case !present:
		result.Taints = append(result.Taints, clusterv1.NodeUninitializedTaint)
		result.Annotations[UninitializedAnnotation] = "added"
	case claimed[UninitializedAnnotation] == "added" &&
		claimed[clusterv1.TaintsFromMachineAnnotation] == result.Annotations[clusterv1.TaintsFromMachineAnnotation]:
		result.Annotations[UninitializedAnnotation] = "added"
	}
	return result
}

// same reports whether the taints contain this taint with the same value.
func same(all map[taint.ID]corev1.Taint, t corev1.Taint) bool {
	found, ok := all[taint.IDOf(t)]
	return ok && found.Value == t.Value
}

// always returns the Always taints, as taints of a Node.
func always(taints []clusterv1.MachineTaint) []corev1.Taint {
	var kept []corev1.Taint
	for _, t := range taints {
		if taint.Always(t) {
			kept = append(kept, taint.ForNode(t))
		}
	}
	return kept
}
