// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// SoftenedLabel is on a Node in use that has had its turn to get taints which evict Pods. Until its Pods have left, the Node has these
// taints with effect NoSchedule (docs/design.md §3). The value is the time of its turn. A kubelet can neither set nor remove the label, as
// with RecordLabel.
const SoftenedLabel = "heirloom.node-restriction.kubernetes.io/softened"

// softenedAt is the format of this time: RFC 3339 with the characters that a label value can have.
const softenedAt = "20060102T150405Z"

// Softened reports whether a Node has had its turn.
func (s NodeState) Softened() bool { return has(s.Labels, SoftenedLabel) }

// SoftenedSince returns the time of a Node's turn, or now if it cannot be read.
func (s NodeState) SoftenedSince(now time.Time) time.Time {
	if since, err := time.Parse(softenedAt, s.Labels[SoftenedLabel]); err == nil {
		return since
	}
	return now
}

// Softening returns the Node with SoftenedLabel: its turn is now, unless it has had its turn before.
func Softening(node NodeState, now time.Time) NodeState {
	node.Labels = mergeMaps(node.Labels, map[string]string{SoftenedLabel: node.SoftenedSince(now).UTC().Format(softenedAt)})
	return node
}

// Taints returns the declared taints with these identities, as taints of a Node.
func (s NodeSource) Taints(ids []taint.ID) (taints []corev1.Taint) {
	for _, t := range s.taints() {
		if slices.Contains(ids, taint.MachineID(t)) {
			taints = append(taints, taint.ForNode(t))
		}
	}
	return taints
}

// Softened returns the source of a Node that has had its turn, with a NoSchedule taint for each held taint. This taint counts as declared
// by annotation, so Heirloom records it, and removes it like any taint that is no longer declared. It gives way to another declaration, and
// to a taint of another writer on the Node.
func (s NodeSource) Softened(held []taint.ID, current NodeState) NodeSource {
	if !current.Softened() {
		return s
	}
	declared := taint.Merge(s.typed, s.annotated)
	recorded, there := taint.ByID(RecordOf(current).Taints), taint.ByID(current.Taints)
	s.annotated = slices.Clip(s.annotated)
	for _, t := range declared {
		id := taint.ID{Key: t.Key, Effect: corev1.TaintEffectNoSchedule}
		isIt := func(other clusterv1.MachineTaint) bool { return taint.MachineID(other) == id }
		foreign := has(there, id) && !has(recorded, id)
		if slices.Contains(held, taint.MachineID(t)) && !foreign && !slices.ContainsFunc(declared, isIt) {
			t.Effect, t.Propagation = id.Effect, clusterv1.MachineTaintPropagationAlways
			s.annotated = append(s.annotated, t)
		}
	}
	return s
}
