// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	// mostPrepared is how many entries are prepared. Owners declare a few dozen; more would take memory that is not worth it.
	mostPrepared = 256
	// rememberedFields is how many different lists of what is ours are remembered. Objects of one owner have the same few.
	rememberedFields = 8
	// longestRemembered is how many bytes such a list may have. A forged request can have any.
	longestRemembered = 4 << 10
)

// Prepared is what all objects of one owner desire, with everything that can be computed without looking at an object. It makes the
// plans of New for the objects that need nothing more, which are nearly all: those that have all that they inherit, and those that
// lack it and have no other value for it. To compute that anew takes most of the time of an admission request
// (BenchmarkWebhookCPU). It must not be changed, and can be used by several goroutines.
type Prepared struct {
	layout  inherit.Layout
	desired inherit.Object
	// places are those where something is desired, in the order in which a plan has them.
	places []place
	// all is what New would own in an object that has nothing of it; fields is the same as managed fields have it.
	all     *fieldpath.Set
	fields  string
	changes []Change
	// settled remembers which lists of managed fields a plan would leave as they are, by their JSON.
	settled *lru.Cache
}

// Prepare returns nil if what is desired depends on what an object has: if some of it gives way, or would be refused.
func Prepare(layout inherit.Layout, desired inherit.Object) *Prepared {
	bare, top := inherit.Object{Layout: layout}, desired.Top
	number := len(top.Labels) + len(top.Annotations) + len(top.Taints) + len(top.Fields.ReadinessGates)
	if desired.Template != nil || len(top.Claims) > 0 || number > mostPrepared {
		return nil
	}
	admitted, leftOut := inherit.Admissible(bare, desired, func() inherit.Object { return bare }, nil)
	if leftOut != nil {
		return nil
	}
	p := &Prepared{layout: layout, desired: admitted, settled: lru.New(rememberedFields)}
	p.places = slices.DeleteFunc(places(bare, admitted), func(at place) bool { return len(at.desired) == 0 })
	var paths []fieldpath.Path
	for _, at := range p.places {
		for _, e := range at.desired {
			paths = pathsOf(paths, e)
			p.changes = append(p.changes, at.change(e, e.value))
		}
	}
	p.all = setOf(paths)
	raw, err := p.all.ToJSON()
	if err != nil {
		return nil
	}
	p.fields = string(raw)
	return p
}

// Plan returns the plan that New makes, or nil if only New can make it.
func (p *Prepared) Plan(child metav1.Object, current inherit.Object) *Plan {
	entries := child.GetManagedFields()
	ours := slices.IndexFunc(entries, IsOurs)
	switch {
	case !p.layout.Equal(current.Layout) || current.Template != nil || !inherit.Fits(current, p.desired):
		return nil
	case ours < 0:
		return p.first(child, current)
	case slices.ContainsFunc(entries[ours+1:], IsOurs):
		return nil
	case inVersion(entries[ours], p.layout.Version) && p.holds(entries[ours]) && p.carried(current.Top):
		return &Plan{owned: p.all, overruled: fieldpath.NewSet(), adopted: fieldpath.NewSet(), managed: managedFields{ours: p.all}}
	}
	return nil
}

// first returns the plan for an object in which nothing is ours, if it lacks some of what is desired and has no other value for any
// of it. Such an object is no copy, so nothing is adopted.
func (p *Prepared) first(child metav1.Object, current inherit.Object) *Plan {
	plan := &Plan{
		overruled: fieldpath.NewSet(), adopted: fieldpath.NewSet(),
		changing: make([]place, 0, len(p.places)),
		managed: managedFields{
			entries: child.GetManagedFields(), layout: current.Layout, ours: fieldpath.NewSet(), index: -1, created: child.GetCreationTimestamp().Time,
		},
	}
	number := 0
	for _, at := range p.places {
		at.current = p.current(at, current.Top)
		lacked, ok := at.lacked()
		if !ok {
			return nil
		}
		if len(lacked) == 0 {
			continue
		}
		at.ours, at.after = lacked, lacked
		if len(at.current) > 0 {
			at.after = slices.Concat(at.current, lacked)
		}
		plan.changing, number = append(plan.changing, at), number+len(lacked)
	}
	plan.applied = plan.changing
	switch number {
	case 0:
		return nil
	case len(p.changes):
		plan.owned, plan.rendered, plan.changes = p.all, p.fields, p.changes
		return plan
	}
	for _, at := range plan.changing {
		for _, e := range at.ours {
			plan.owns = pathsOf(plan.owns, e)
			plan.changes = append(plan.changes, at.change(e, e.value))
		}
	}
	plan.owned = setOf(plan.owns)
	return plan
}

// lacked returns those of what is desired that the place does not have. ok is false if it has another value for one of them.
func (p place) lacked() (lacked []entry, ok bool) {
	if len(p.current) == 0 {
		return p.desired, true
	}
	lacked = make([]entry, 0, len(p.desired))
	for _, want := range p.desired {
		there := false
		for _, e := range p.current { // a list may have it twice, until it is validated
			if e.name != want.name {
				continue
			}
			if !e.equal(want) {
				return nil, false
			}
			there = true
		}
		if !there {
			lacked = append(lacked, want)
		}
	}
	return lacked, true
}

// current returns the entries that an object has at a place where something is desired, in its order. They have no paths: a plan that
// only adds does not ask for them.
func (p *Prepared) current(at place, has inherit.Content) []entry {
	paths := p.layout.Top
	_, isMap := at.form.(members)
	switch {
	case isMap && at.path[len(at.path)-1] == "labels":
		return mapEntries(has.Labels, nil)
	case isMap:
		return mapEntries(has.Annotations, nil)
	case slices.Equal(at.path, paths.Taints):
		return taintEntries(has.Taints, nil)
	case slices.Equal(at.path, paths.Fields[inherit.ReadinessGates]):
		return gateEntries(has.Fields.ReadinessGates)
	}
	for f, seconds := range has.Fields.Seconds {
		if slices.Equal(at.path, paths.Fields[f]) {
			return scalarPlace(paths, inherit.Field(f), seconds, nil).current
		}
	}
	return nil
}
