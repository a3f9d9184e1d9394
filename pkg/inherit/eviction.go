// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// registration is the time for which a Node counts as new. Pods on a new Node have only just started.
const registration = 10 * time.Minute

// InitializationLabel is on a Node in use that waits for its OnInitialization taints, because a taint among them evicts its Pods. Until its turn,
// the Node counts as never initialized. A kubelet can neither set nor remove the label, as with RecordLabel.
const InitializationLabel = "heirloom.node-restriction.kubernetes.io/initialization"

// Evicting returns the declared taints with effect NoExecute, Always or Initialize, that a Node in use would get now. Adding a NoExecute
// taint or changing its value evicts Pods. before are the stored taints of the Node, if a write is about to change it. The result has no
// Always taint that the Node had from its Machine and that was taken away: it is put back at once.
func (s NodeSource) Evicting(node *corev1.Node, before []corev1.Taint, now time.Time) []taint.ID {
	current := OfNode(node, now)
	initialized := current.initialized()
	if node.CreationTimestamp.IsZero() || !initialized && now.Sub(node.CreationTimestamp.Time) < registration {
		return nil
	}
	theirs, ours := listedTaints(node.Annotations)
	recorded := taint.ByID(slices.Concat(RecordOf(current).Taints, theirs, ours)) // ByID takes the first
	there, had := taint.ByID(current.Taints), taint.ByID(before)
	var evicting []taint.ID
	for _, declares := range s.taints() {
		t, id := taint.ForNode(declares), taint.MachineID(declares)
		brought := !initialized
		if taint.Always(declares) {
			// If the Node has another value, the taint was taken away only if the record has the declared value: otherwise the owner may
			// have changed it.
			takenAway := has(recorded, id) && (!has(there, id) || t.Value != "" && same(recorded, t))
			brought = !takenAway
		}
		if evicts(declares) && brought && !same(there, t) && !same(had, t) {
			evicting = append(evicting, id)
		}
	}
	return evicting
}

// evicts reports whether adding the taint to a Node evicts Pods.
func evicts(t clusterv1.MachineTaint) bool { return t.Effect == corev1.TaintEffectNoExecute }

// same reports whether the taints contain this taint with the same value.
func same(all map[taint.ID]corev1.Taint, t corev1.Taint) bool {
	found, ok := all[taint.IDOf(t)]
	return ok && found.Value == t.Value
}

// NodeHolding is Node while the held taints wait: as if they were not declared yet (Holding). A Node whose OnInitialization taints wait gets
// InitializationLabel, and a Node that has had its turn keeps SoftenedLabel.
func (p Policy) NodeHolding(from NodeSource, held []taint.ID, current NodeState, writer Writer) (NodeState, Drops) {
	result, dropped := p.Node(from.Holding(held, current), current, writer)
	if from.holdsInitialization(held, current) {
		result.Labels = mergeMaps(result.Labels, map[string]string{InitializationLabel: "waiting"})
	}
	if len(held) > 0 && current.Softened() {
		result.Labels = mergeMaps(result.Labels, map[string]string{SoftenedLabel: current.Labels[SoftenedLabel]})
	}
	return result, dropped
}

// Holding returns the source for a Node while the held taints wait: without these taints, or with the value that the Node has from an
// earlier declaration, and softened if the Node has had its turn. If an OnInitialization taint is held, all OnInitialization taints wait: a Node gets
// them once and together.
func (s NodeSource) Holding(held []taint.ID, current NodeState) NodeSource {
	if len(held) == 0 {
		return s
	}
	waiting := sets.New(held...)
	if s.holdsInitialization(held, current) {
		waiting.Insert(s.initializing()...)
	}
	why := DropWaiting
	if current.Softened() {
		why = DropPods
	}
	s.dropped = slices.Clip(s.dropped)
	for _, id := range waiting.UnsortedList() {
		s.dropped.drop(Entry{taintKey, id.String(), true}, why, "", "")
	}
	recorded, there := taint.ByID(RecordOf(current).Taints), taint.ByID(current.Taints)
	withhold := func(declared []clusterv1.MachineTaint) (rest []clusterv1.MachineTaint) {
		for _, t := range declared {
			if id := taint.MachineID(t); waiting.Has(id) {
				if !has(there, id) || !has(recorded, id) {
					continue
				}
				t.Value = there[id].Value
			}
			rest = append(rest, t)
		}
		return rest
	}
	s = s.Softened(held, current)
	s.typed, s.annotated = withhold(s.typed), withhold(s.annotated)
	return s
}

// holdsInitialization reports whether the held taints contain an OnInitialization taint of a Node that has not been initialized.
func (s NodeSource) holdsInitialization(held []taint.ID, current NodeState) bool {
	return len(held) > 0 && !current.initialized() && slices.ContainsFunc(s.initializing(), sets.New(held...).Has)
}

// initializing returns the declared OnInitialization taints.
func (s NodeSource) initializing() []taint.ID {
	var ids []taint.ID
	for _, t := range s.taints() {
		if taint.Initialize(t) {
			ids = append(ids, taint.MachineID(t))
		}
	}
	return ids
}
