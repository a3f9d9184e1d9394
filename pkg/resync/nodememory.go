// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"k8s.io/utils/lru"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// remembered is of how many Nodes the loop knows what they had, so that its memory has a bound. Of those that it has forgotten
// it believes what the cache says.
const remembered = 50_000

// nodeMemory remembers what each Node inherited when it last had all of that. No Node says so itself: its version cannot be
// compared with that of its Machine, which another API server may store, and its kubelet may write its annotations.
type nodeMemory struct{ had *lru.Cache }

func newNodeMemory() nodeMemory {
	return nodeMemory{had: lru.New(remembered)}
}

// set says that the Node has all this, which is what it inherits.
func (m nodeMemory) set(node NodeRequest, inherited inherit.NodeState) {
	m.had.Add(node, inherited)
}

func (m nodeMemory) of(node NodeRequest) inherit.NodeState {
	known, _ := m.had.Get(node)
	had, _ := known.(inherit.NodeState)
	return had
}

// lost reports whether the result brings back to a Node what it had. Then somebody may have taken it away who may not, or
// Cluster API, which knows already that the Machine no longer has it.
func (m nodeMemory) lost(node NodeRequest, current, result inherit.NodeState) bool {
	return len(inherit.Kept(m.of(node), current, result)) > 0
}

// restored returns the state of a Node with the record that it had, if its kubelet has changed that.
func (m nodeMemory) restored(node NodeRequest, current inherit.NodeState) inherit.NodeState {
	return inherit.Restored(current, m.of(node))
}
