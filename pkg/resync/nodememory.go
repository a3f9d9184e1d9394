// SPDX-License-Identifier: Apache-2.0

package resync

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// remembered is how many Nodes the loop remembers, so that its memory has a bound. For the others it trusts the cache.
const remembered = 50_000

// nodeMemory remembers what each Node inherited when it last had all of it. The Node itself cannot tell: its version cannot be
// compared with that of its Machine, which another API server may store, and its kubelet may write its annotations.
type nodeMemory struct {
	had *lru.Cache
	// unwritten are records that wait until Cluster API has written their Nodes: unwritten by NodeRequest.
	unwritten *lru.Cache
}

// unwritten is a record that is not written yet.
type unwritten struct {
	// of is the UID of its Node. Another Node may get the same name.
	of     types.UID
	taints []corev1.Taint
}

func newNodeMemory() nodeMemory {
	return nodeMemory{had: lru.New(remembered), unwritten: lru.New(remembered)}
}

// set records that the Node has everything that it inherits. Nothing may change that state afterwards.
func (m nodeMemory) set(node NodeRequest, inherited inherit.NodeState) {
	m.had.Add(node, &inherited)
}

func (m nodeMemory) of(node NodeRequest) inherit.NodeState {
	known, _ := m.had.Get(node)
	if had, ok := known.(*inherit.NodeState); ok {
		return *had
	}
	return inherit.NodeState{}
}

// lost reports whether the result restores something that the Node had. Either it was removed wrongly, or by Cluster API,
// which already knows that the Machine no longer has it.
func (m nodeMemory) lost(node NodeRequest, current, result inherit.NodeState) bool {
	return len(inherit.Kept(m.of(node), current, result)) > 0
}

// postpone remembers the record of a Node that is not written for now. It also has what the Node is believed to have from its Machine,
// which the Machine may have lost.
func (m nodeMemory) postpone(req NodeRequest, node *corev1.Node, believed, result inherit.NodeState) {
	m.unwritten.Add(req, unwritten{of: node.UID, taints: inherit.RecordOf(result).With(inherit.RecordOf(believed).Taints).Taints})
}

// written ends that: the Node has its record, or is gone.
func (m nodeMemory) written(node NodeRequest) {
	m.unwritten.Remove(node)
}

// restored returns the state of a Node with the record that it had, if its kubelet has changed that, and with one that is not written
// yet.
func (m nodeMemory) restored(req NodeRequest, node *corev1.Node) inherit.NodeState {
	state := inherit.Restored(inherit.OfNode(node), m.of(req))
	known, _ := m.unwritten.Get(req)
	if record, ok := known.(unwritten); ok && record.of == node.UID {
		return inherit.Remembering(state, record.taints)
	}
	return state
}
