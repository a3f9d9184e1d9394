// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// admissible leaves out of what is desired what an API server would refuse in the child, once what is stale has gone from it. old
// returns what the child had before an update; it may be nil.
func (p *Plan) admissible(current inherit.Object, decided inherit.Decision, old func() (inherit.Object, error)) inherit.Object {
	before := func() inherit.Object {
		if old != nil && decided.Outcome != inherit.NoOwner {
			if known, err := old(); err == nil {
				return known
			}
		}
		return current
	}
	stays := sync.OnceValue(func() sets.Set[inherit.Entry] { return p.notOnlyOurs(current) })
	admitted, leftOut := inherit.Admissible(current, decided.Desired, before, func(e inherit.Entry) bool {
		return decided.Outcome == inherit.NoOwner || stays().Has(e) // without an owner nothing is given up
	})
	p.leftOut = leftOut
	return admitted
}

// notOnlyOurs returns what stays in a child if it inherits nothing.
func (p *Plan) notOnlyOurs(current inherit.Object) sets.Set[inherit.Entry] {
	stays := sets.New[inherit.Entry]()
	for _, at := range places(current, inherit.Object{}) {
		for _, e := range at.current {
			if !p.managed.ours.Has(e.path) || p.shared(e.path) {
				stays.Insert(at.called(e))
			}
		}
	}
	return stays
}
