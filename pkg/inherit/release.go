// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Release is the state of a Node once Heirloom has given up for good what it tracks there: without the keys and taints that its
// own annotations list, without these annotations, and without the guard taint that it added. keepValues keeps the keys and
// taints. The guard taint always goes, because nothing else would remove it.
//
// Cluster API manages what its own annotations list. Taints among that are then listed in the only form that it can read. Keys that its
// rules propagate as well are added to its list, so that it removes them as soon as the Machine no longer has them.
func Release(current NodeState, keepValues bool) NodeState {
	result := NodeState{Labels: maps.Clone(current.Labels), Annotations: maps.Clone(current.Annotations), Taints: current.Taints}
	listed, record := current.Annotations, RecordOf(current)
	for _, m := range []released{
		{result.Labels, nodeLabel, record.vouches(), LabelsFromMachineAnnotation, clusterv1.LabelsFromMachineAnnotation},
		{result.Annotations, nodeAnnotation, anything, AnnotationsFromMachineAnnotation, clusterv1.AnnotationsFromMachineAnnotation},
	} {
		m.release(result.Annotations, keepValues)
	}
	if !keepValues {
		result.Taints = taint.Sync(result.Taints, nil, record.only(onlyOurTaints(listed)), true)
	}
	if has(listed, UninitializedAnnotation) {
		result.Taints = taint.Remove(result.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))
	}
	maps.DeleteFunc(result.Annotations, func(key, _ string) bool { return tracks(key) && domain(key) == "heirloom.dev" })
	delete(result.Labels, RecordLabel)
	delete(result.Labels, InitializationLabel)
	if list, ok := listed[clusterv1.TaintsFromMachineAnnotation]; ok {
		taints, _ := taint.ParseList(list) // a broken entry goes, as whenever this annotation is written
		result.Annotations[clusterv1.TaintsFromMachineAnnotation] = taint.FormatIDs(taints)
	}
	return result
}

// released is a map of a Node that Heirloom gives up.
type released struct {
	values map[string]string
	// byRule says which keys Cluster API propagates as well, believed which ones our list can be believed about.
	byRule, believed func(key string) bool
	// ours and theirs are the annotations that list keys: Heirloom's and Cluster API's.
	ours, theirs string
}

// release gives up the keys that we list and Cluster API does not: Cluster API's list gets those that it propagates, and the others go,
// unless their values are to stay.
func (r released) release(annotations map[string]string, keepValues bool) {
	theirs := splitKeys(annotations[r.theirs])
	for _, key := range splitKeys(annotations[r.ours]) {
		switch {
		case slices.Contains(theirs, key) || !has(r.values, key) || !r.believed(key):
		case r.byRule(key):
			theirs = append(theirs, key)
			annotations[r.theirs] = joinKeys(theirs)
		case !keepValues:
			delete(r.values, key)
		}
	}
}

// onlyOurTaints returns the taints that we list and Cluster API does not.
func onlyOurTaints(annotations map[string]string) []corev1.Taint {
	ours, _ := taint.ParseList(annotations[TaintsFromMachineAnnotation])
	theirs, _ := taint.ParseList(annotations[clusterv1.TaintsFromMachineAnnotation])
	listed := taint.Positions(theirs)
	return slices.DeleteFunc(ours, func(t corev1.Taint) bool { _, ok := listed[taint.IDOf(t)]; return ok })
}
