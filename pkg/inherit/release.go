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
	release(result.Annotations, result.Labels, labelKey, keepValues, func(key string) bool { // a kubelet may have added restricted keys
		return !restricted(key) || slices.Contains(record.Labels, key)
	})
	release(result.Annotations, result.Annotations, annotationKey, keepValues, func(string) bool { return true })
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

// release gives up the keys of a map of a Node that we list and Cluster API does not: Cluster API's list gets those that it propagates,
// and the others go, unless their values are to stay.
func release(annotations, values map[string]string, what string, keepValues bool, believed func(key string) bool) {
	lists := trackedBy[what]
	theirs := splitKeys(annotations[lists[0]])
	for _, key := range splitKeys(annotations[lists[1]]) {
		switch {
		case slices.Contains(theirs, key) || !has(values, key) || !believed(key):
		case byRule(what, key):
			theirs = append(theirs, key)
			annotations[lists[0]] = joinKeys(theirs)
		case !keepValues:
			delete(values, key)
		}
	}
}

// onlyOurTaints returns the taints that we list and Cluster API does not.
func onlyOurTaints(annotations map[string]string) []corev1.Taint {
	theirs, ours := listedTaints(annotations)
	listed := taint.Positions(theirs)
	return slices.DeleteFunc(ours, func(t corev1.Taint) bool { _, ok := listed[taint.IDOf(t)]; return ok })
}
