// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"cmp"
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
	for what, names := range trackedBy {
		recorded[what] = current.Lists(what, names[0]).Union(current.Lists(what, names[1]))
	}
	value := current.values()
	return brought(current, result, func(what, key, _ string) bool {
		_, present := value(what, key)
		return !present && recorded[what].Has(key)
	})
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

// Entry names a Node's key as the Machine and those above it declare it.
func (k NodeKey) Entry() Entry {
	name := k.Name
	if t, err := taint.Parse(name); err == nil && k.What == taintKey {
		name = taint.IDOf(t).String()
	}
	return Entry{What: k.What, Name: name}
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

// Unprotected returns the Always taints that are declared for a Node and missing there.
func (s NodeSource) Unprotected(node NodeState) []taint.ID {
	var missing []taint.ID
	at := taint.Positions(node.Taints)
	for _, t := range always(s.taints()) {
		if i, ok := at[taint.IDOf(t)]; !ok || node.Taints[i].Value != t.Value {
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
	return now.Sub(node.CreationTimestamp.Time) < registration ||
		taint.Find(node.Spec.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint)) >= 0
}

// BrokenTracking returns what cannot be read in the annotations that record the taints of a Node, or nil.
func BrokenTracking(node NodeState) error {
	var errs []error
	for _, name := range []string{clusterv1.TaintsFromMachineAnnotation, TaintsFromMachineAnnotation} {
		if _, err := taint.ParseList(node.Annotations[name]); err != nil {
			errs = append(errs, fmt.Errorf("annotation %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
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
	if m == nil || m.Spec.ProviderID == "" || m.Spec.ProviderID != node.Spec.ProviderID {
		return false
	}
	recorded := taint.Positions(RecordOf(current).Taints)
	for _, t := range always(from.annotated) {
		if _, known := recorded[taint.IDOf(t)]; !known {
			return false
		}
	}
	gone, only := p.takesAway(current, result)
	if !only {
		return false
	}
	labels := keysLeft{labelKey, m.Labels, from.Labels, current.Annotations[clusterv1.LabelsFromMachineAnnotation]}
	annotations := keysLeft{
		annotationKey, m.Annotations, from.Annotations, current.Annotations[clusterv1.AnnotationsFromMachineAnnotation],
	}
	changedLabels := slices.DeleteFunc(changed(current.Labels, result.Labels), func(key string) bool { return key == RecordLabel })
	changedAnnotations := slices.DeleteFunc(changed(current.Annotations, result.Annotations), tracks)
	writes := gone+len(changedLabels)+len(changedAnnotations) > 0 || awaitsClusterAPI(current)
	return writes && labels.all(changedLabels) && annotations.all(changedAnnotations)
}

// keysLeft tells which keys of a Node's map Cluster API writes: those that its rules propagate, if the Machine has them or if the Machine
// will not have them and Cluster API's annotation lists them.
type keysLeft struct {
	what          string
	has, declared map[string]string
	listed        string
}

func (k keysLeft) all(changed []string) bool {
	return !slices.ContainsFunc(changed, func(key string) bool {
		removes := !has(k.declared, key) && slices.Contains(splitKeys(k.listed), key)
		return !byRule(k.what, key) || !has(k.has, key) && !removes
	})
}

// takesAway returns how many taints the Node would lose, and whether all that would become of its taints is that Cluster API takes these
// away: those that its list has, and the one that keeps workload away until it has written the Node.
func (p Policy) takesAway(current, result NodeState) (gone int, only bool) {
	listed, _ := taint.ParseList(current.Annotations[clusterv1.TaintsFromMachineAnnotation])
	byClusterAPI := taint.Positions(listed)
	rest := slices.DeleteFunc(slices.Clone(current.Taints), func(t corev1.Taint) bool {
		_, is := byClusterAPI[taint.IDOf(t)]
		is = is && p.ClusterAPITaints == PropagationEnabled || t.MatchTaint(&clusterv1.NodeUninitializedTaint)
		return is && taint.Find(result.Taints, taint.IDOf(t)) < 0
	})
	return len(current.Taints) - len(rest), (NodeState{Taints: rest}).Equal(NodeState{Taints: result.Taints})
}

// awaitsClusterAPI reports whether Cluster API has yet to write a Node for the first time.
func awaitsClusterAPI(node NodeState) bool {
	return slices.ContainsFunc(node.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&clusterv1.NodeUninitializedTaint) })
}

// changed returns the keys that two maps do not have in common with the same value.
func changed(a, b map[string]string) []string {
	var keys []string
	for key := range maps.Keys(mergeMaps(a, b)) {
		before, had := a[key]
		after, has := b[key]
		if had != has || before != after {
			keys = append(keys, key)
		}
	}
	return keys
}
