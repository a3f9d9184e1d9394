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

// NodeKey is one label, annotation or taint of a Node.
type NodeKey struct {
	Entry // as the Machine and those above it declare it
	Value string
}

// Text returns the key, and all of a taint.
func (k NodeKey) Text() string {
	if k.What == taintKey && k.Value != "" {
		return strings.Replace(k.Name, ":", "="+k.Value+":", 1)
	}
	return k.Name
}

// String names the key, such as `label "a/b"`.
func (k NodeKey) String() string { return fmt.Sprintf("%s %q", k.What, k.Text()) }

// keys returns all that a Node has, without what only records it, sorted; taints stay in their order.
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

// values returns the value of all that a Node has.
func (s NodeState) values() map[Entry]string {
	all := map[Entry]string{}
	for _, k := range slices.Backward(s.keys()) { // of several taints, the first counts
		all[k.Entry] = k.Value
	}
	return all
}

// Brought names what the result adds to the Node or changes there, without what only tracks it.
func Brought(current, result NodeState) []NodeKey {
	had := current.values()
	return slices.DeleteFunc(result.keys(), func(k NodeKey) bool { before, ok := had[k.Entry]; return ok && before == k.Value })
}

// Removed names what the result takes away from the Node.
func Removed(current, result NodeState) []NodeKey {
	after := result.values()
	return slices.DeleteFunc(current.keys(), func(k NodeKey) bool { return has(after, k.Entry) })
}

// Kept names what an update of a Node tried to remove or to change and inheritance put back: what the old object and the result
// have and the requested object lacks.
func Kept(old, requested, result NodeState) []NodeKey {
	before := old.values()
	return slices.DeleteFunc(Brought(requested, result), func(k NodeKey) bool { value, had := before[k.Entry]; return !had || value != k.Value })
}

// Lost names what the Node still inherits and had, as its tracking annotations say, but no longer has: another manager removed it.
// A different value does not count, because an owner may have declared it before.
func Lost(current, result NodeState) []NodeKey {
	now, listed := current.values(), current.listed(0).Union(current.listed(1))
	return slices.DeleteFunc(Brought(current, result), func(k NodeKey) bool { return has(now, k.Entry) || !listed.Has(k.Entry) })
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
	taints, _ := taint.ParseList(s.Annotations[annotation]) // BrokenTracking reports the rest
	return keySet(taint.FormatIDs(taints))
}

// listed returns all that the tracking annotations of Cluster API (0) or our own (1) list.
func (s NodeState) listed(by int) sets.Set[Entry] {
	all := sets.New[Entry]()
	for what, names := range trackedBy {
		for name := range s.Lists(what, names[by]) {
			all.Insert(Entry{What: what, Name: name})
		}
	}
	return all
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
	p = p.naming(from)
	for key, value := range from.Labels {
		if now, ok := node.Labels[key]; (!ok || now != value) && restricted(key) && p.notOnNode(labelKey, key) == "" {
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
// which are its records. Not left to it are new taints, what the Machine does not have yet, a Node without its Machine's providerID, and a
// Node without a record of the Always taints that are declared by annotation, which would stay when the Machine loses them.
//
// A taint that Heirloom took away first could stay for good: a reconcile that has begun before puts it back, and no record lists it.
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
