// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// NodeKey is one label, annotation or taint of a Node.
type NodeKey struct {
	What string // label, annotation or taint
	Name string // the key, and all of a taint
}

// String names the key, such as `label "a/b"`.
func (k NodeKey) String() string {
	return fmt.Sprintf("%s %q", k.What, k.Name)
}

// Entry names a Node's key as the Machine and those above it declare it.
func (k NodeKey) Entry() Entry {
	if t, err := taint.Parse(k.Name); err == nil && k.What == taintKey {
		return TaintEntry(taint.IDOf(t))
	}
	return Entry{What: k.What, Name: k.Name}
}

// trackedBy has the annotations that list what came from the Machine: Cluster API's and our own.
//
//nolint:gochecknoglobals // a table that nothing changes
var trackedBy = map[string][2]string{
	labelKey:      {clusterv1.LabelsFromMachineAnnotation, LabelsFromMachineAnnotation},
	annotationKey: {clusterv1.AnnotationsFromMachineAnnotation, AnnotationsFromMachineAnnotation},
	taintKey:      {clusterv1.TaintsFromMachineAnnotation, TaintsFromMachineAnnotation},
}

// Lists returns the keys that a tracking annotation lists; of taints, "<key>:<effect>".
func (s NodeState) Lists(what, annotation string) sets.Set[string] {
	if what != taintKey {
		return keySet(s.Annotations[annotation])
	}
	listed := sets.New[string]()
	taints, _ := taint.ParseList(s.Annotations[annotation]) // BrokenTracking reports the rest
	for _, t := range taints {
		listed.Insert(taint.IDOf(t).String())
	}
	return listed
}

// listed returns a function that tells which entries the tracking annotations of Cluster API (0) or our own (1) list.
func (s NodeState) listed(by int) func(Entry) bool {
	all := map[string]sets.Set[string]{}
	for what, names := range trackedBy {
		all[what] = s.Lists(what, names[by])
	}
	return func(e Entry) bool { return all[e.What].Has(e.Name) }
}

// BrokenTracking returns what cannot be read in the annotations that record the taints of a Node, or nil.
func BrokenTracking(node NodeState) error {
	var errs []error
	for _, name := range trackedBy[taintKey] {
		if _, err := taint.ParseList(node.Annotations[name]); err != nil {
			errs = append(errs, fmt.Errorf("annotation %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Kept names what an update of a Node tried to remove or to change and inheritance put back: what the old object and the result
// have and the requested object lacks.
func Kept(old, requested, result NodeState) []NodeKey {
	oldValue := old.values()
	return brought(requested, result, func(e Entry, value string) bool {
		before, had := oldValue(e)
		return had && before == value
	})
}

// Brought names what the result adds to the Node or changes there, without what only tracks it.
func Brought(current, result NodeState) []NodeKey {
	return brought(current, result, func(Entry, string) bool { return true })
}

// Removed names what the result takes away from the Node.
func Removed(current, result NodeState) []NodeKey {
	after := result.values()
	return brought(result, current, func(e Entry, _ string) bool { _, still := after(e); return !still })
}

// Lost names what the Node still inherits and had, as its tracking annotations say, but no longer has: another manager removed it.
// A different value does not count, because an owner may have declared it before.
func Lost(current, result NodeState) []NodeKey {
	now, theirs, ours := current.values(), current.listed(0), current.listed(1)
	return brought(current, result, func(e Entry, _ string) bool {
		_, present := now(e)
		return !present && (theirs(e) || ours(e))
	})
}

// values returns a function that looks up the value of a label, an annotation or, by its identity, a taint.
func (s NodeState) values() func(Entry) (string, bool) {
	taints := make(map[string]string, len(s.Taints))
	for _, t := range slices.Backward(s.Taints) { // of several, the first counts
		taints[taint.IDOf(t).String()] = t.Value
	}
	of := map[string]map[string]string{labelKey: s.Labels, annotationKey: s.Annotations, taintKey: taints}
	return func(e Entry) (string, bool) {
		value, ok := of[e.What][e.Name]
		return value, ok
	}
}

// brought names what only the second state has, or has with another value, if it counts and is no record of what came from the Machine.
func brought(without, with NodeState, counts func(e Entry, value string) bool) []NodeKey {
	var keys []NodeKey
	had := without.values()
	look := func(e Entry, name, value string) {
		if before, had := had(e); (!had || before != value) && counts(e, value) {
			keys = append(keys, NodeKey{What: e.What, Name: name})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(with.Labels)) {
		if !marks(key) {
			look(Entry{What: labelKey, Name: key}, key, with.Labels[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(with.Annotations)) {
		if !tracks(key) {
			look(Entry{What: annotationKey, Name: key}, key, with.Annotations[key])
		}
	}
	for _, t := range with.Taints {
		look(TaintEntry(taint.IDOf(t)), taint.Format(t), t.Value)
	}
	return keys
}

// Unprotected returns the Always taints that are declared for a Node and missing there.
func (s NodeSource) Unprotected(node NodeState) []taint.ID {
	var missing []taint.ID
	there := taint.ByID(node.Taints)
	for _, t := range always(s.taints()) {
		if !same(there, t) {
			missing = append(missing, taint.IDOf(t))
		}
	}
	return missing
}

// Unlabelled reports whether the Node still lacks an inherited label that its kubelet may not set itself.
func (p Policy) Unlabelled(from NodeSource, node NodeState) bool {
	for key, value := range from.Labels {
		now, ok := node.Labels[key]
		if (!ok || now != value) && restricted(key) && p.notOnNode(labelKey, key) == "" {
			return true
		}
	}
	return false
}

// Registering reports whether a Node is new, or has not yet received all that Cluster API gives to a new Node.
func Registering(node *corev1.Node, now time.Time) bool {
	return now.Sub(node.CreationTimestamp.Time) < registration || awaitsClusterAPI(node)
}

// awaitsClusterAPI reports whether Cluster API has yet to write a Node for the first time.
func awaitsClusterAPI(node *corev1.Node) bool {
	return taint.Find(node.Spec.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint)) >= 0
}

// LeftToClusterAPI reports whether Cluster API's Machine controller is about to write everything that would become of a Node: labels and
// annotations that it propagates or that its lists record, taints that it takes away, and what Heirloom adds to any write of the Node,
// which are its records. No new taint is left to it, nor what the Machine does not have yet, nor a Node without its Machine's
// providerID, nor a Node without a record of the Always taints that are declared by annotation: Cluster API knows nothing of those, and
// without the record they would stay when the Machine loses them.
//
// A taint that Heirloom took away first could stay for good: a reconcile that has begun with the Machine as it was puts it back, and then
// no record says that it comes from the Machine.
func (p Policy) LeftToClusterAPI(from NodeSource, node *corev1.Node, result NodeState) bool {
	m, current := from.machine, NodeState{Labels: node.Labels, Annotations: node.Annotations, Taints: node.Spec.Taints}
	recorded := taint.ByID(RecordOf(current).Taints)
	unknown := func(t corev1.Taint) bool { _, known := recorded[taint.IDOf(t)]; return !known }
	if m == nil || m.Spec.ProviderID == "" || m.Spec.ProviderID != node.Spec.ProviderID || slices.ContainsFunc(always(from.annotated), unknown) {
		return false
	}
	has, declared, listed := OfMachine(m).Top, from.Declares(), current.listed(0)
	adds := func(k NodeKey) bool {
		_, propagated := has.Value(k.Entry())
		return k.What != taintKey && propagated && byRule(k.What, k.Name)
	}
	takes := func(k NodeKey) bool {
		e := k.Entry()
		if k.What == taintKey {
			return e == TaintEntry(taint.IDOf(clusterv1.NodeUninitializedTaint)) || listed(e) && p.ClusterAPITaints == PropagationEnabled
		}
		_, stays := declared.Value(e)
		return listed(e) && !stays && byRule(k.What, k.Name)
	}
	not := func(all []NodeKey, left func(NodeKey) bool) bool {
		return slices.ContainsFunc(all, func(k NodeKey) bool { return !left(k) })
	}
	brought, removed := Brought(current, result), Removed(current, result)
	return !not(brought, adds) && !not(removed, takes) && (len(brought)+len(removed) > 0 || awaitsClusterAPI(node))
}
