// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// OpenedGatesAnnotation lists the start-up gates (taint.Gate) that have opened on a Node, as "<key>:<effect>". Their taints are not removed
// again.
const OpenedGatesAnnotation = "heirloom.dev/opened-gates"

// ClosedGates returns the declared start-up gates whose taints a Node has, sorted. It leaves out gates that have opened before, taints with
// another value, and taints that are also declared as Always.
func (s NodeSource) ClosedGates(node NodeState) (closed []taint.Gate) {
	gates := taint.Gates(s.Annotations)
	if len(gates) == 0 {
		return nil
	}
	there, opened := taint.ByID(node.Taints), OpenedGates(node)
	for _, t := range s.taints() {
		gate, gated := gates[taint.MachineID(t)]
		if gated && taint.Initialize(t) && same(there, taint.ForNode(t)) && !opened.Has(taint.MachineID(t).String()) {
			closed = append(closed, gate)
		}
	}
	return closed
}

// OpenGates returns the Node without the taints of the closed gates that open: the Node has the gate's condition, or a ready Pod of the
// gate's DaemonSet. The result records the opened gates, and forgets gates that are no longer declared.
func (s NodeSource) OpenGates(node NodeState, conditions []corev1.NodeCondition, ready sets.Set[types.NamespacedName]) NodeState {
	declared, opened := sets.New[string](), OpenedGates(node)
	for id := range taint.Gates(s.Annotations) {
		declared.Insert(id.String())
	}
	opened = opened.Intersection(declared)
	for _, gate := range s.ClosedGates(node) {
		met := slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == gate.Condition && c.Status == gate.Status })
		if met || ready.Has(gate.DaemonSet) {
			opened.Insert(taint.IDOf(gate.Taint).String())
			node.Taints = taint.Remove(node.Taints, taint.IDOf(gate.Taint))
		}
	}
	node.Annotations = mergeMaps(node.Annotations, nil)
	setOrDelete(node.Annotations, OpenedGatesAnnotation, taint.Join(opened.UnsortedList()))
	return node
}

// OpenedGates returns "<key>:<effect>" of the start-up gates that have opened on a Node.
func OpenedGates(node NodeState) sets.Set[string] {
	return keySet(node.Annotations[OpenedGatesAnnotation])
}
