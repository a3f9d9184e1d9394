// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// admissible leaves out of what is desired what an API server would refuse in the child, once what is stale has gone from it. old
// returns what the child had before an update; it is nil where there is none.
func (p *Plan) admissible(current inherit.Object, decided inherit.Decision, old func() (inherit.Object, error)) inherit.Object {
	admitted, leftOut := inherit.Admissible(current, decided.Desired, func() inherit.Object {
		if decided.Outcome == inherit.NoOwner {
			return current // an orphan gives nothing up
		}
		before := current
		if old != nil {
			if known, err := old(); err == nil {
				before = known
			}
		}
		return before.Only(p.notOnlyOurs(current).Has)
	})
	p.leftOut = leftOut
	return admitted
}

// notOnlyOurs returns what stays in a child if it inherits nothing.
func (p *Plan) notOnlyOurs(current inherit.Object) sets.Set[inherit.Entry] {
	stays := sets.New[inherit.Entry]()
	for _, at := range places(current, inherit.Object{}) {
		for _, e := range at.current {
			if path := at.pathTo(e); !p.managed.ours.Has(path) || p.shared(path) {
				stays.Insert(at.called(e))
			}
		}
	}
	return stays
}
