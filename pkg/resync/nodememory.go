// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"k8s.io/utils/lru"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// remembered is how many Nodes the loop remembers, so that its memory has a bound. For the others it trusts the cache.
const remembered = 50_000

// nodeMemory remembers what each Node inherited when it last had all of it. The Node itself cannot tell: its version cannot be
// compared with that of its Machine, which another API server may store, and its kubelet may write its annotations.
type nodeMemory struct{ had *lru.Cache }

func newNodeMemory() nodeMemory {
	return nodeMemory{had: lru.New(remembered)}
}

// set records that the Node has everything that it inherits.
func (m nodeMemory) set(node NodeRequest, inherited inherit.NodeState) {
	m.had.Add(node, inherited)
}

func (m nodeMemory) of(node NodeRequest) inherit.NodeState {
	known, _ := m.had.Get(node)
	had, _ := known.(inherit.NodeState)
	return had
}

// lost reports whether the result restores something that the Node had. Either it was removed wrongly, or by Cluster API,
// which already knows that the Machine no longer has it.
func (m nodeMemory) lost(node NodeRequest, current, result inherit.NodeState) bool {
	return len(inherit.Kept(m.of(node), current, result)) > 0
}

// restored returns the state of a Node with the record that it had, if its kubelet has changed that.
func (m nodeMemory) restored(node NodeRequest, current inherit.NodeState) inherit.NodeState {
	return inherit.Restored(current, m.of(node))
}
