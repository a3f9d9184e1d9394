// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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

// added returns the entries that the result adds to the Node, or changes there, without tracking annotations.
func added(current, result NodeState) []NodeKey {
	had := current.values()
	return filterKeys(result.keys(), func(k NodeKey) bool { before, ok := had[k.Entry]; return !ok || before != k.Value })
}

// removed returns the entries that the result removes from the Node.
func removed(current, result NodeState) []NodeKey {
	after := result.values()
	return filterKeys(current.keys(), func(k NodeKey) bool { return !has(after, k.Entry) })
}

func filterKeys(keys []NodeKey, keep func(NodeKey) bool) (kept []NodeKey) {
	for _, k := range keys {
		if keep(k) {
			kept = append(kept, k)
		}
	}
	return kept
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
