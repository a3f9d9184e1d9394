// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// NodeKey is one label, annotation or taint of a Node.
type NodeKey struct {
	// What is label, annotation or taint.
	What string
	// Name is the key, and all of a taint.
	Name string
}

// String names the key, such as `label "a/b"`.
func (k NodeKey) String() string {
	return fmt.Sprintf("%s %q", k.What, k.Name)
}

// Kept names what an update of a Node tried to remove or to change and inheritance put back: what the old object and the result
// have and the requested object lacks.
func Kept(old, requested, result NodeState) []NodeKey {
	oldValue := old.values()
	return brought(requested, result, func(what, key, value string) bool {
		before, had := oldValue(what, key)
		return had && before == value && !records(what, key)
	})
}

// Brought names what the result adds to the Node or changes there, without the annotations that track it; Removed names what the
// result takes away.
func Brought(current, result NodeState) []NodeKey {
	return brought(current, result, func(what, key, _ string) bool { return !records(what, key) })
}

// Removed names what a Node loses; see Brought.
func Removed(current, result NodeState) []NodeKey {
	value := result.values()
	return brought(result, current, func(what, key, _ string) bool {
		_, still := value(what, key)
		return !still && !records(what, key)
	})
}

// Lost names what the Node still inherits and had, as its tracking annotations say, but no longer has: another manager removed it.
// A different value does not count, because an owner may have declared it before.
func Lost(current, result NodeState) []NodeKey {
	recorded := map[string]sets.Set[string]{}
	for what, names := range trackedBy() {
		recorded[what] = current.lists(what, names[0]).Union(current.lists(what, names[1]))
	}
	value := current.values()
	return brought(current, result, func(what, key, _ string) bool {
		_, present := value(what, key)
		return !present && recorded[what].Has(key)
	})
}

// ListedIn returns the annotations that record an entry of a Node as its Machine's.
func (s NodeState) ListedIn(e Entry) []string {
	var names []string
	for _, name := range trackedBy()[e.What] {
		if s.lists(e.What, name).Has(e.Name) {
			names = append(names, name)
		}
	}
	record := RecordOf(s)
	taints := taint.Positions(record.Taints)
	for id := range taints {
		if e.What == taintKey && id.String() == e.Name {
			return append(names, RecordAnnotation)
		}
	}
	if e.What == labelKey && slices.Contains(record.Labels, e.Name) {
		names = append(names, RecordAnnotation)
	}
	return names
}

// trackedBy returns the annotations that list what came from the Machine: Cluster API's and our own.
func trackedBy() map[string][2]string {
	return map[string][2]string{
		labelKey:      {clusterv1.LabelsFromMachineAnnotation, LabelsFromMachineAnnotation},
		annotationKey: {clusterv1.AnnotationsFromMachineAnnotation, AnnotationsFromMachineAnnotation},
		taintKey:      {clusterv1.TaintsFromMachineAnnotation, TaintsFromMachineAnnotation},
	}
}

// lists returns the keys that one of these annotations lists; of taints, "<key>:<effect>".
func (s NodeState) lists(what, annotation string) sets.Set[string] {
	if what != taintKey {
		return sets.New(splitKeys(s.Annotations[annotation])...)
	}
	listed := sets.New[string]()
	taints, _ := taint.ParseList(s.Annotations[annotation]) // BrokenTracking reports the rest
	for _, t := range taints {
		listed.Insert(taint.IDOf(t).String())
	}
	return listed
}

// The sorts of keys that a Node has.
const (
	labelKey      = "label"
	annotationKey = "annotation"
	taintKey      = "taint"
)

// records reports whether a key only says what came from the Machine.
func records(what, key string) bool {
	return what == annotationKey && tracks(key) || what == labelKey && marks(key)
}

// values returns a function that looks up the value of a label, an annotation or, by its identity, a taint.
func (s NodeState) values() func(what, key string) (string, bool) {
	taints := make(map[string]string, len(s.Taints))
	for _, t := range slices.Backward(s.Taints) { // of several, the first counts
		taints[taint.IDOf(t).String()] = t.Value
	}
	of := map[string]map[string]string{labelKey: s.Labels, annotationKey: s.Annotations, taintKey: taints}
	return func(what, key string) (string, bool) {
		value, ok := of[what][key]
		return value, ok
	}
}

// brought names what only the second state has, or has with another value, if it counts.
func brought(without, with NodeState, counts func(what, key, value string) bool) []NodeKey {
	var keys []NodeKey
	had := without.values()
	brings := func(what, key, value string) bool {
		before, had := had(what, key)
		return (!had || before != value) && counts(what, key, value)
	}
	for what, all := range map[string]map[string]string{labelKey: with.Labels, annotationKey: with.Annotations} {
		for key, value := range all {
			if brings(what, key, value) {
				keys = append(keys, NodeKey{What: what, Name: key})
			}
		}
	}
	slices.SortFunc(keys, func(a, b NodeKey) int { // labels first
		return cmp.Or(-cmp.Compare(a.What, b.What), cmp.Compare(a.Name, b.Name))
	})
	for _, t := range with.Taints {
		if brings(taintKey, taint.IDOf(t).String(), t.Value) {
			keys = append(keys, NodeKey{What: taintKey, Name: taint.Format(t)})
		}
	}
	return keys
}
