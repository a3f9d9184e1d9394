// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// CleanUp returns the state of a Node after Heirloom has given up its tracked entries for good: without the keys and taints that Heirloom's
// annotations list, unless keepValues keeps them, without these annotations, and without the guard taint that Heirloom added.
//
// Cluster API continues to manage the entries that its own annotations list. Taints among these are then listed in the only form that
// Cluster API can read. Keys that its rules also propagate are added to its list, so that it removes them as soon as the Machine no longer
// has them.
func CleanUp(current NodeState, keepValues bool) NodeState {
	result := NodeState{Labels: maps.Clone(current.Labels), Annotations: maps.Clone(current.Annotations), Taints: current.Taints}
	listed, record := current.Annotations, RecordOf(current)
	cleanUp(result.Annotations, result.Labels, labelKey, keepValues, func(key string) bool { // a kubelet may have added restricted keys
		return !restricted(key) || slices.Contains(record.Labels, key)
	})
	cleanUp(result.Annotations, result.Annotations, annotationKey, keepValues, func(string) bool { return true })
	if !keepValues {
		byClusterAPI, _ := taint.ParseList(listed[clusterv1.TaintsFromMachineAnnotation])
		ours, _ := taint.ParseList(listed[TaintsFromMachineAnnotation])
		theirs, recorded := taint.ByID(byClusterAPI), taint.ByID(record.Taints) // a kubelet may have written the lists
		ours = slices.DeleteFunc(ours, func(t corev1.Taint) bool { return has(theirs, taint.IDOf(t)) || !has(recorded, taint.IDOf(t)) })
		result.Taints = taint.Sync(result.Taints, nil, ours, true)
	}
	if has(listed, UninitializedAnnotation) {
		result.Taints = taint.Remove(result.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))
	}
	maps.DeleteFunc(result.Annotations, func(key, _ string) bool { return tracks(key) && domain(key) == "heirloom.dev" })
	maps.DeleteFunc(result.Labels, func(key, _ string) bool { return marks(key) })
	if list, ok := listed[clusterv1.TaintsFromMachineAnnotation]; ok {
		taints, _ := taint.ParseList(list) // an invalid entry is removed, as in every write of this annotation
		result.Annotations[clusterv1.TaintsFromMachineAnnotation] = taint.FormatIDs(taints)
	}
	return result
}

// cleanUp gives up the keys of a map of a Node that our annotation lists and Cluster API's annotation does not list. Keys that Cluster API
// propagates are added to its list; other keys are removed, unless their values are to stay.
func cleanUp(annotations, values map[string]string, what string, keepValues bool, believed func(key string) bool) {
	lists := trackedBy[what]
	theirs := taint.Split(annotations[lists[0]])
	for _, key := range taint.Split(annotations[lists[1]]) {
		switch {
		case slices.Contains(theirs, key) || !has(values, key) || !believed(key):
		case byRule(what, key):
			theirs = append(theirs, key)
			annotations[lists[0]] = taint.Join(theirs)
		case !keepValues:
			delete(values, key)
		}
	}
}
