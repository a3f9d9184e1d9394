// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// A Node inherits from its Machine as it will be, so that a change at the top reaches Nodes at once. Meanwhile, Cluster API's Machine
// controller propagates the Machine as it is, whenever the Node changes. Two rules keep the two from undoing each other's writes:
//
//   - What the Machine has counts until it changes there. Otherwise Cluster API would set the old value again, or put back what was
//     removed (whileUnchanged).
//   - What the Machine does not have yet reaches the Node at once, and an annotation of Heirloom lists it. Cluster API removes from a Node
//     what its own annotation lists and the Machine does not have (ahead). Once the Machine has it, Cluster API finds it on the Node and
//     writes nothing. So it stays listed there until Cluster API lists it in another write of the Node; moving it would be a second write
//     (held).

// whileUnchanged returns the content that a Machine will have, with the values that it has now. Only Heirloom reads the annotations
// that declare taints, so those count as they will be.
func whileUnchanged(has, after Content) Content {
	after.Labels = mergeMaps(after.Labels, has.Labels)
	after.Annotations = mergeMaps(after.Annotations, filter(has.Annotations, func(key string) bool { return !declaresTaints(key) }))
	after.Taints = taint.Merge(has.Taints, after.Taints)
	return after
}

// ahead tells what a Node inherits before its Machine has it. Without a Machine, that is nothing.
type ahead struct{ machine *clusterv1.Machine }

// AheadOf returns the source of a Node whose Machine is like this now.
func (s NodeSource) AheadOf(m *clusterv1.Machine) NodeSource {
	s.ahead = ahead{m}
	return s
}

func (a ahead) label(key string) bool {
	return a.machine != nil && !has(a.machine.Labels, key)
}

func (a ahead) annotation(key string) bool {
	return a.machine != nil && !has(a.machine.Annotations, key)
}

func (a ahead) taint(t corev1.Taint) bool {
	return a.machine != nil && !slices.ContainsFunc(a.machine.Spec.Taints, func(has clusterv1.MachineTaint) bool {
		return taint.MachineID(has) == taint.IDOf(t)
	})
}
