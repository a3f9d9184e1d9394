// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// registration is how long a Node counts as new. Whatever it runs then, it has just been given.
const registration = 10 * time.Minute

// Evicting returns the Always taints with effect NoExecute that the Machine declares and that a Node which is not new has
// never had from it: bringing one evicts Pods. One that somebody took away from the Node is not among them.
func Evicting(m *capi.Machine, node *corev1.Node, now time.Time) []taint.ID {
	isNew := node.CreationTimestamp.IsZero() ||
		!OfNode(node).initialized() && now.Sub(node.CreationTimestamp.Time) < registration
	if isNew {
		return nil
	}
	declared, _ := taintsOf(m) // what is left out is reported where the Node itself is seen to
	recorded := recordedTaints(node.Annotations)
	var evicting []taint.ID
	for _, t := range always(declared.all()) {
		id := taint.IDOf(t)
		if t.Effect == corev1.TaintEffectNoExecute && taint.Find(node.Spec.Taints, id) < 0 && taint.Find(recorded, id) < 0 {
			evicting = append(evicting, id)
		}
	}
	return evicting
}

// WithoutTaints returns the Machine as if it did not declare these taints.
func WithoutTaints(m *capi.Machine, ids []taint.ID) *capi.Machine {
	if len(ids) == 0 {
		return m
	}
	listed := func(t clusterv1.MachineTaint) bool { return slices.Contains(ids, taint.MachineID(t)) }
	without := m.DeepCopy()
	without.Spec.Taints = slices.DeleteFunc(without.Spec.Taints, listed)
	annotated, _ := taint.FromAnnotations(m.Annotations) // as above
	without.Annotations = maps.Clone(m.Annotations)
	delete(without.Annotations, taint.AlwaysAnnotation)
	delete(without.Annotations, taint.InitializeAnnotation)
	for name, value := range taint.ToAnnotations(slices.DeleteFunc(annotated, listed)) {
		without.Annotations[name] = value
	}
	return without
}
