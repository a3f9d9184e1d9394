// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// NodeKey is a label, an annotation or a taint of a Node.
type NodeKey struct {
	Entry // as the Machine and its owners declare it
	Value string
}

// Text returns the key; for a taint with a value, "<key>=<value>:<effect>".
func (k NodeKey) Text() string {
	if k.What == taintKey && k.Value != "" {
		return strings.Replace(k.Name, ":", "="+k.Value+":", 1)
	}
	return k.Name
}

// String names the key, such as `label "a/b"`.
func (k NodeKey) String() string { return fmt.Sprintf("%s %q", k.What, k.Text()) }

// keys returns the entries of a Node, sorted, without tracking annotations and Heirloom's own labels. Taints stay in their order.
func (s NodeState) keys() []NodeKey {
	var all []NodeKey
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		if !marks(key) {
			all = append(all, NodeKey{Entry{What: labelKey, Name: key}, s.Labels[key]})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Annotations)) {
		if !tracks(key) {
			all = append(all, NodeKey{Entry{What: annotationKey, Name: key}, s.Annotations[key]})
		}
	}
	for _, t := range s.Taints {
		all = append(all, NodeKey{TaintEntry(taint.IDOf(t)), t.Value})
	}
	return all
}

// values returns the value of each entry of a Node.
func (s NodeState) values() map[Entry]string {
	all := map[Entry]string{}
	for _, k := range slices.Backward(s.keys()) { // of several taints, the first counts
		all[k.Entry] = k.Value
	}
	return all
}

// Brought returns the entries that the result adds to the Node, or changes there, without tracking annotations.
func Brought(current, result NodeState) []NodeKey {
	had := current.values()
	return slices.DeleteFunc(result.keys(), func(k NodeKey) bool { before, ok := had[k.Entry]; return ok && before == k.Value })
}

// Removed returns the entries that the result removes from the Node.
func Removed(current, result NodeState) []NodeKey {
	after := result.values()
	return slices.DeleteFunc(current.keys(), func(k NodeKey) bool { return has(after, k.Entry) })
}

// Kept returns the entries that an update of a Node tried to remove or to change and inheritance put back: the old object and the result
// have them, and the requested object lacks them.
func Kept(old, requested, result NodeState) []NodeKey {
	before := old.values()
	return slices.DeleteFunc(Brought(requested, result), func(k NodeKey) bool { value, had := before[k.Entry]; return !had || value != k.Value })
}

// Lost returns the entries that the Node still inherits and its tracking annotations list, but that it no longer has: another manager
// removed them. A different value does not count, because an owner may have declared it before.
func Lost(current, result NodeState) []NodeKey {
	now, listed := current.values(), current.listed(0).Union(current.listed(1))
	return slices.DeleteFunc(Brought(current, result), func(k NodeKey) bool { return has(now, k.Entry) || !listed.Has(k.Entry) })
}

// trackedBy has the annotations that track inherited entries: Cluster API's annotation and our own.
//
//nolint:gochecknoglobals // a table that nothing changes
var trackedBy = map[string][2]string{
	labelKey:      {clusterv1.LabelsFromMachineAnnotation, LabelsFromMachineAnnotation},
	annotationKey: {clusterv1.AnnotationsFromMachineAnnotation, AnnotationsFromMachineAnnotation},
	taintKey:      {clusterv1.TaintsFromMachineAnnotation, TaintsFromMachineAnnotation},
}

// Lists returns the keys that a tracking annotation lists; for taints, "<key>:<effect>".
func (s NodeState) Lists(what, annotation string) sets.Set[string] {
	if what != taintKey {
		return keySet(s.Annotations[annotation])
	}
	taints, _ := taint.ParseList(s.Annotations[annotation]) // BrokenTracking reports invalid entries
	return keySet(taint.FormatIDs(taints))
}

// listed returns the entries that the tracking annotations of Cluster API (0) or our own (1) list.
func (s NodeState) listed(by int) sets.Set[Entry] {
	all := sets.New[Entry]()
	for what, names := range trackedBy {
		for name := range s.Lists(what, names[by]) {
			all.Insert(Entry{What: what, Name: name})
		}
	}
	return all
}

// BrokenTracking returns an error about invalid entries in the annotations that track the taints of a Node, or nil.
func BrokenTracking(node NodeState) error {
	var errs []error
	for _, name := range trackedBy[taintKey] {
		if _, err := taint.ParseList(node.Annotations[name]); err != nil {
			errs = append(errs, fmt.Errorf("annotation %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Unprotected returns the Always taints that are declared for a Node and that it lacks, or has with another value.
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

// Unlabelled reports whether the Node still lacks an inherited label, or its value, and the kubelet may not set the label itself.
func (p Policy) Unlabelled(from NodeSource, node NodeState) bool {
	p = p.naming(from)
	for key, value := range from.Labels {
		if now, ok := node.Labels[key]; (!ok || now != value) && restricted(key) && p.notOnNode(labelKey, key) == "" {
			return true
		}
	}
	return false
}

// Registering reports whether a Node is new, or Cluster API has not written it yet.
func Registering(node *corev1.Node, now time.Time) bool {
	return now.Sub(node.CreationTimestamp.Time) < registration || awaitsClusterAPI(node)
}

// awaitsClusterAPI reports whether Cluster API has yet to write a Node for the first time.
func awaitsClusterAPI(node *corev1.Node) bool {
	return taint.Find(node.Spec.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint)) >= 0
}

// LeftToClusterAPI reports whether Cluster API's Machine controller is about to make every change of this result: labels and annotations
// that it propagates or that its annotations list, taints that it removes, and Heirloom's records, which Heirloom adds to any write of the
// Node. Heirloom writes new taints itself, entries that the Machine does not have yet, a Node without its Machine's providerID, and a Node
// without a record of the Always taints that are declared by annotation: without the record, they would stay when the Machine loses them.
//
// A taint that Heirloom removed first could stay for good: a reconcile that has already begun puts it back, and no record lists it.
func (p Policy) LeftToClusterAPI(from NodeSource, node *corev1.Node, result NodeState) bool {
	m, current := from.machine, NodeState{Labels: node.Labels, Annotations: node.Annotations, Taints: node.Spec.Taints}
	recorded := taint.ByID(RecordOf(current).Taints)
	unknown := func(t corev1.Taint) bool { return !has(recorded, taint.IDOf(t)) }
	if m == nil || !hasProviderID(node, m) || slices.ContainsFunc(always(from.annotated), unknown) {
		return false
	}
	declared, declares, listed := OfMachine(m).Top, from.Declares(), current.listed(0)
	brought, removed := Brought(current, result), Removed(current, result)
	for _, k := range brought {
		if _, propagated := declared.Value(k.Entry); k.What == taintKey || !propagated || !byRule(k.What, k.Name) {
			return false
		}
	}
	for _, k := range removed {
		_, stays := declares.Value(k.Entry)
		left := !stays && byRule(k.What, k.Name)
		if k.What == taintKey {
			left = p.ClusterAPITaints == PropagationEnabled
		}
		if k.Entry != TaintEntry(taint.IDOf(clusterv1.NodeUninitializedTaint)) && (!left || !listed.Has(k.Entry)) {
			return false
		}
	}
	return len(brought)+len(removed) > 0 || awaitsClusterAPI(node)
}
