// SPDX-License-Identifier: Apache-2.0

package taint

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// AlwaysAnnotation declares taints that are kept on the Node as long as the Machine declares them,
	// in kubectl's syntax: "key=value:Effect,key:Effect".
	AlwaysAnnotation = "taints.heirloom.dev/always"

	// InitializeAnnotation declares taints that a Node gets once, when it registers.
	InitializeAnnotation = "taints.heirloom.dev/initialize"
)

// ID identifies a taint: an object holds at most one taint per key and effect.
type ID struct {
	Key    string
	Effect corev1.TaintEffect
}

// String returns the form that Cluster API uses in its tracking annotation, "<key>:<effect>".
func (id ID) String() string {
	return id.Key + ":" + string(id.Effect)
}

// IDOf returns the identity of a Node's taint.
func IDOf(t corev1.Taint) ID {
	return ID{Key: t.Key, Effect: t.Effect}
}

// MachineID returns the identity of a Machine's taint.
func MachineID(t clusterv1.MachineTaint) ID {
	return ID{Key: t.Key, Effect: t.Effect}
}

// Always reports whether the taint is kept on the Node for as long as it is declared.
func Always(t clusterv1.MachineTaint) bool {
	return t.Propagation == clusterv1.MachineTaintPropagationAlways
}

// Initialize reports whether the Node gets the taint once. Cluster API calls this OnInitialization.
func Initialize(t clusterv1.MachineTaint) bool {
	return t.Propagation == clusterv1.MachineTaintPropagationOnInitialization || t.Propagation == "Initialize"
}

// Positions returns where each taint is, by identity; of several, where the first is.
func Positions(taints []corev1.Taint) map[ID]int {
	at := make(map[ID]int, len(taints))
	for i, t := range taints {
		if _, ok := at[IDOf(t)]; !ok {
			at[IDOf(t)] = i
		}
	}
	return at
}

// Find returns the position of the taint with this identity in taints, or -1.
func Find(taints []corev1.Taint, id ID) int {
	return slices.IndexFunc(taints, func(t corev1.Taint) bool { return IDOf(t) == id })
}

// Merge returns typed and annotated taints as one list, sorted by key and effect, each key and effect once.
// The typed taint wins over the annotated one (docs/design.md §3), and the first over the second within either.
func Merge(typed, annotated []clusterv1.MachineTaint) []clusterv1.MachineTaint {
	seen := map[ID]bool{}
	var merged []clusterv1.MachineTaint
	for _, t := range slices.Concat(typed, annotated) {
		if !seen[MachineID(t)] {
			seen[MachineID(t)] = true
			merged = append(merged, t)
		}
	}
	slices.SortFunc(merged, func(a, b clusterv1.MachineTaint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect))
	})
	return merged
}
