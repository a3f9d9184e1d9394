// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownership"
)

// remembered is of how many children the loop knows what they had, so that its memory has a bound. Of those that it has
// forgotten it believes what the cache says.
const remembered = 50_000

// settled remembers of each child what it inherited when it last had all of that. A child that lacks some of the very same
// now has lost it: to somebody who may not take it, or to Cluster API, which knows already that the owner no longer declares
// it. Only the API server can tell, so it is asked then, and not whenever there is something to write.
type settled struct{ had *lru.Cache }

func newSettled() settled {
	return settled{had: lru.New(remembered)}
}

// set says that the child has all this, which is what it inherits.
func (s settled) set(child fmt.Stringer, inherited any) {
	s.had.Add(child.String(), inherited)
}

// lost reports whether the plan brings back to an object of Cluster API what it had before.
func (s settled) lost(child fmt.Stringer, plan *ownership.Plan) bool {
	known, _ := s.had.Get(child.String())
	had, ok := known.(inherit.Object)
	if !ok {
		return false
	}
	carried := ownership.Carried(had)
	return slices.ContainsFunc(plan.Changes(), func(change ownership.Change) bool { return change.Value != nil && carried(change) })
}

// lostByNode reports whether the result brings back to a Node what it had before.
func (s settled) lostByNode(node NodeRequest, current, result inherit.NodeState) bool {
	known, _ := s.had.Get(node.String())
	had, ok := known.(inherit.NodeState)
	return ok && len(inherit.Kept(had, current, result)) > 0
}

// believed returns the state of a Node with the record that it had when it was last settled, if its kubelet has changed that.
func (s settled) believed(node NodeRequest, current inherit.NodeState) inherit.NodeState {
	known, _ := s.had.Get(node.String())
	if had, ok := known.(inherit.NodeState); ok {
		return inherit.Restored(current, had)
	}
	return current
}

// childKey names a child in the management cluster.
type childKey struct {
	kind schema.GroupKind
	name types.NamespacedName
}

// String implements fmt.Stringer.
func (k childKey) String() string {
	return k.kind.String() + "/" + k.name.String()
}
