// SPDX-License-Identifier: Apache-2.0

package taint

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ForNode is a Node's taint of the form that the API server stores.
func ForNode(t clusterv1.MachineTaint) corev1.Taint {
	return corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
}

// Sync returns a Node's taints after inheritance (rule 13, docs/design.md §1 and §3):
//
//   - Always taints are there, with their value.
//   - Initialize taints are there if the Node has not been initialized yet; later they are neither added nor removed.
//   - A taint that is recorded as ours and no longer declared is gone, unless it has been given another value since.
//   - Every other taint stays as it is.
//
// Order is kept and what is new comes last, so that equal input gives equal output.
func Sync(current []corev1.Taint, declared []clusterv1.MachineTaint, recorded []corev1.Taint, initialized bool) []corev1.Taint {
	keep := map[ID]bool{}
	for _, t := range declared {
		keep[MachineID(t)] = true
	}
	means := recordsOf(recorded)
	result := slices.DeleteFunc(slices.Clone(current), func(t corev1.Taint) bool { return !keep[IDOf(t)] && means(t) })
	at := Positions(result)
	for _, t := range declared {
		if !Always(t) && (!Initialize(t) || initialized) {
			continue
		}
		i, present := at[MachineID(t)]
		switch {
		case !present:
			at[MachineID(t)], result = len(result), append(result, ForNode(t))
		case result[i].Value != t.Value:
			result[i] = ForNode(t)
		}
	}
	return result
}

// recordsOf returns which taints the tracking entries mean. Cluster API's form has no value and means any.
func recordsOf(entries []corev1.Taint) func(corev1.Taint) bool {
	listed := sets.New(entries...)
	return func(t corev1.Taint) bool {
		return listed.Has(corev1.Taint{Key: t.Key, Effect: t.Effect}) || listed.Has(corev1.Taint{Key: t.Key, Effect: t.Effect, Value: t.Value})
	}
}

// Remove returns taints without the one that has this identity.
func Remove(taints []corev1.Taint, id ID) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return IDOf(t) == id })
}
