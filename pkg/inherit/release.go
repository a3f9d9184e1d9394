// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Release is the state of a Node once Heirloom has given up for good what it tracks there: without the keys and taints that its
// own annotations list, without these annotations, and without the guard taint that it added. keepValues keeps the keys and
// taints. The guard taint always goes, because nothing else would remove it.
//
// Cluster API manages what its own annotations list. Taints among that are then listed in the only form that it can read.
func Release(current NodeState, keepValues bool) NodeState {
	result := NodeState{Labels: maps.Clone(current.Labels), Annotations: maps.Clone(current.Annotations), Taints: current.Taints}
	listed := current.Annotations
	if !keepValues {
		record := RecordOf(current)
		forget(result.Labels, record.vouches(), listed[LabelsFromMachineAnnotation], listed[clusterv1.LabelsFromMachineAnnotation])
		forget(result.Annotations, anything, listed[AnnotationsFromMachineAnnotation], listed[clusterv1.AnnotationsFromMachineAnnotation])
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

// forget removes the keys that we list and Cluster API does not, if the list can be believed.
func forget(m map[string]string, believed func(key string) bool, ours, theirs string) {
	others := sets.New(splitKeys(theirs)...)
	for _, key := range splitKeys(ours) {
		if !others.Has(key) && believed(key) {
			delete(m, key)
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
