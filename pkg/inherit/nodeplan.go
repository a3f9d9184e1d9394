// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Eviction is the treatment of NoExecute taints that would evict Pods from a Node in use.
type Eviction int

const (
	// EvictsNow adds them.
	EvictsNow Eviction = iota
	// Waits leaves them out: it is not the Node's turn.
	Waits
	// AsksPods adds them with effect NoSchedule until the Pods have left. The Node's turn has come.
	AsksPods
)

// Turn limits a write to a Node. The caller of PlanNode decides it. The zero value is a write that may do everything.
type Turn struct {
	Eviction Eviction
	// PodsLeft are the taints for which all Pods have left the Node: these taints need not wait for Pods any longer.
	PodsLeft []corev1.Taint
	// Recorded says that the Node's record has the time at which it gets taints that evict Pods, RollOutOver that the roll-out in its Cluster
	// is over, and the record need not have it any longer.
	Recorded, RollOutOver bool
	// Registering says that the Node's own kubelet creates it, under NodeRestriction (docs/design.md §4).
	Registering bool
	// Stored is the Node before an update in admission, otherwise nil. A taint that it has evicts no Pods when it is put back.
	Stored *NodeState
	// OpensGates says that start-up gates may open. Met are their requirements that other objects than the Node have been seen to meet.
	OpensGates bool
	Met        sets.Set[taint.Requirement]
}

// NodePlan is the decision about a Node: its state after a write, and the reasons.
type NodePlan struct {
	Node Node
	// Result is the state of the Node after the write.
	Result NodeState
	// Added, Removed and Kept are the entries that the write adds or changes, removes, and puts back after another writer removed them.
	Added, Removed, Kept []NodeKey
	// LeftOut are the declared entries that the Node does not get.
	LeftOut Drops
	// Evicting are the declared taints that would evict Pods from the Node, Held the evicting taints that wait.
	Evicting, Held []corev1.Taint
	// Gates are the closed start-up gates, Opened the taints of gates that the write opens.
	Gates  []taint.Gate
	Opened []taint.ID
	// Unprotected are the Always taints that the Node lacks, without waiting taints. Unlabeled says that it lacks labels that its kubelet
	// may not set.
	Unprotected []taint.ID
	Unlabeled   bool

	always     []corev1.Taint
	restricted map[string]string
}

// Changes reports whether the write changes the Node.
func (p NodePlan) Changes() bool { return !p.Result.Equal(p.Node.NodeState) }

// Evicts reports whether the write evicts Pods from the Node.
func (p NodePlan) Evicts() bool { return len(p.Evicting) > len(p.Held) }

// WaitsForPods reports whether the Node has had its turn, and its Pods must leave before it gets the held taints.
func (p NodePlan) WaitsForPods() bool { return len(p.Held) > 0 && !p.Node.Record.Softened.IsZero() }

// Written returns the plan after its write.
func (p NodePlan) Written() NodePlan {
	p.Node = p.Node.Written(p.Result)
	return p.withMissing()
}

func (p NodePlan) withMissing() NodePlan {
	p.Unprotected, p.Unlabeled = nil, false
	there := taint.ByID(p.Node.Taints)
	for _, t := range p.always {
		if !same(there, t) {
			p.Unprotected = append(p.Unprotected, taint.IDOf(t))
		}
	}
	for key, value := range p.restricted {
		now, labeled := p.Node.Labels[key]
		p.Unlabeled = p.Unlabeled || !labeled || now != value
	}
	return p
}

// PlanNode implements rules 11, 12 and 13: it decides what a write does to a Node.
func (p Policy) PlanNode(node Node, from NodeSource, turn Turn) NodePlan {
	if turn.Stored != nil { // the update may change the record
		node = node.Restored(turn.Stored.Annotations[RecordAnnotation])
	}
	if !node.recorded {
		node.Record = registered(node.NodeState, from)
	}
	if forged(node, from) {
		node.Record, node.recorded = Record{}, false
	}
	plan := p.planNode(node, from, turn)
	if turn.Eviction == AsksPods && len(plan.Held) > 0 && RecordOf(plan.Result).Softened.IsZero() {
		turn.Eviction = EvictsNow // no record can say that the Node has had its turn, and its kubelet must not keep the taints away
		return p.planNode(node, from, turn)
	}
	return plan
}

func (p Policy) planNode(node Node, from NodeSource, turn Turn) NodePlan {
	w := &nodeWrite{policy: p.naming(from), stored: node, node: node, from: from, turn: turn, out: slices.Clip(from.dropped)}
	if turn.Registering {
		w.node = node.unwritten()
	}
	w.initializes = w.turn.Registering || !w.node.recorded &&
		(w.node.Registering() || w.turn.Stored != nil && isUninitialized(w.turn.Stored.Taints))
	w.declare()
	result := w.withinLimits(w.metadata())
	plan := NodePlan{
		Node: node, Result: result, LeftOut: w.out, Evicting: w.evicting, Held: w.held, Gates: w.closed, Opened: w.opened,
		always: always(w.declared), restricted: w.restricted,
	}
	if plan.Changes() {
		plan.Added, plan.Removed = added(node.NodeState, result), removed(node.NodeState, result)
		plan.Kept = w.kept(plan.Added)
	}
	return plan.withMissing()
}

// nodeWrite is the write of a Node while it is planned.
type nodeWrite struct {
	policy Policy
	// stored is the Node as it is; node is the Node without annotations that its kubelet registers with.
	stored, node Node
	from         NodeSource
	turn         Turn
	out          Drops
	// initializes says that the Node gets its OnInitialization taints in this write: it registers and has never been initialized, or
	// Cluster API is about to write it for the first time. Nothing that a kubelet can write later decides it.
	initializes bool

	// typed and annotated are the declared taints, without the values and taints that wait, and declared are both. gates are the declared
	// start-up gates.
	typed, annotated, declared []clusterv1.MachineTaint
	gates                      map[taint.ID]taint.Gate
	evicting, held             []corev1.Taint
	closed                     []taint.Gate
	opened                     []taint.ID
	// restricted are the inherited labels that a kubelet may not set on its own Node.
	restricted map[string]string
}

// completed adds taints, the guard and the record to a state with metadata. A kubelet cannot write the label of the record.
func (w *nodeWrite) completed(metadata NodeState) NodeState {
	result := w.guard(w.openGates(w.taints(metadata)))
	if !w.turn.Registering {
		return w.withRecord(result)
	}
	setOrDelete(result.Annotations, RecordAnnotation, Record{Taints: always(w.declared)}.signed(w.from))
	return result
}

// withinLimits returns the completed state. If an API server would refuse its annotations, the Node gets no labels and no annotations, but
// loses entries as usual: a kubelet that fills its annotations must not keep keys that its Machine no longer has.
func (w *nodeWrite) withinLimits(metadata NodeState) NodeState {
	result := w.completed(metadata)
	wrong := w.tooLarge(result)
	if wrong == nil {
		return result
	}
	w.out.drop(Entry{}, DropInvalid, "", fmt.Sprintf("labels and annotations: a Node has no room for all of them: %v", wrong))
	for what, left := range map[string]map[string]string{labelKey: result.Labels, annotationKey: result.Annotations} {
		for key := range left {
			w.out.drop(Entry{what, key, true}, DropInvalid, "", "")
		}
	}
	stays := NodeState{
		Labels:      filter(w.node.Labels, func(key string) bool { return has(result.Labels, key) }),
		Annotations: filter(w.node.Annotations, func(key string) bool { return has(result.Annotations, key) }),
	}
	if result = w.completed(stays); w.tooLarge(result) == nil {
		return result
	}
	// There is no room even for our own annotations. Taints take no room there, and the kubelet must not keep them away: a Node that
	// registers gets all taints, and later the Always taints, which need no record that the Node had them.
	stays.Taints = result.Taints
	if !w.turn.Registering {
		stays.Taints = taint.Sync(w.node.Taints, w.declared, w.node.Record.Taints, true)
	}
	return stays
}

// tooLarge returns an error if the result changes the annotations and they have more bytes than an API server accepts. The record of a
// label takes more room than the label itself, so a Machine may have more labels than its Node has room for.
func (w *nodeWrite) tooLarge(result NodeState) error {
	if maps.Equal(w.node.Annotations, result.Annotations) {
		return nil
	}
	return apivalidation.ValidateAnnotationsSize(result.Annotations)
}

// kept returns the added entries that another writer removed: entries that an update in admission removes from the stored Node, or entries
// that the tracking annotations list. A different value does not count in a list, because an owner may have declared it before.
func (w *nodeWrite) kept(added []NodeKey) []NodeKey {
	if w.turn.Stored != nil {
		before := w.turn.Stored.values()
		return filterKeys(added, func(k NodeKey) bool { value, had := before[k.Entry]; return had && value == k.Value })
	}
	now := w.node.values()
	return filterKeys(added, func(k NodeKey) bool { return !has(now, k.Entry) && w.node.lists(k.Entry) })
}

// lists reports whether a tracking annotation lists the entry.
func (n Node) lists(e Entry) bool {
	if e.What != taintKey {
		return n.keys[e.What][0].Has(e.Name) || n.keys[e.What][1].Has(e.Name)
	}
	return slices.ContainsFunc(slices.Concat(n.taints[0], n.taints[1]), func(t corev1.Taint) bool { return taint.IDOf(t).String() == e.Name })
}
