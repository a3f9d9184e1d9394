// SPDX-License-Identifier: Apache-2.0

// Package managedfields turns what a child inherits into a write that owns exactly what it adds (docs/design.md §2).
//
// A Plan is computed from the child, its managed fields and what it should inherit. It can be rendered in two ways, which lead to the
// same object: as JSON patch operations for an admission response, which include our entry in metadata.managedFields, or as the
// configuration of a server-side apply.
package managedfields

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Manager is the field manager of everything that Heirloom adds to Cluster API objects.
const Manager = "heirloom"

// Plan is the write that makes a child carry what it inherits, and own no more than that.
type Plan struct {
	places  []place
	entries []*entry // of all places
	changes []Change
	// owned is what we own after the write. The write takes overruled from other managers, because it changes their value, and
	// adopted from the create of the object, which had them right.
	owned, overruled, adopted *fieldpath.Set
	// managed is what the object's managed fields say now.
	managed managedFields
	// moves says that the write moves our entry from another version of the API, in which it lists more than labels and annotations.
	moves bool
	// old returns what the child had before an update, and an error for any other write.
	old     func() (inherit.Object, error)
	leftOut error
	// unreadable says why it cannot be told what other managers own, where that mattered.
	unreadable error
}

// Change is one label, annotation, taint or field that a plan adds, replaces or removes.
type Change struct {
	inherit.Entry
	// Place is the dotted path of the map, list or field, such as "metadata.labels".
	Place string
	// Value is what it becomes; nil where it is removed.
	Value any
}

// String describes a change in the words of a warning, such as `label "team"`.
func (c Change) String() string {
	where := "template "
	if c.Own {
		where = ""
	}
	return fmt.Sprintf("%s%s %q", where, c.What, c.Name)
}

// New computes the plan for a child. It returns an error where the child's managed fields cannot be read.
//
// During an update of the child, old returns what it had before; otherwise it is nil. What the update itself adds has no claim to the
// room that inherited entries need: an update that fills a Machine with taints is refused by the API server.
func New(child metav1.Object, current inherit.Object, decided inherit.Decision, old func() (inherit.Object, error)) (*Plan, error) {
	applies := old == nil && !child.GetCreationTimestamp().Time.IsZero() // not in admission
	return newPlan(child, current, decided, old, func(*entry) {}, applies && decided.Outcome == inherit.Inherits)
}

// NewRemoval computes a plan that only gives up, and adopts, what New's does: nothing is added and no value changes. A
// patch makes its sender own as Update what it adds or changes, so those are left to an apply.
func NewRemoval(child metav1.Object, current inherit.Object, decided inherit.Decision) (*Plan, error) {
	return newPlan(child, current, decided, nil, func(e *entry) {
		switch {
		case e.has.none():
			e.want = item{}
		case !e.want.none():
			wanted := e.want.leaves
			e.want = item{e.has.value, maps.Clone(e.has.leaves)}
			maps.DeleteFunc(e.want.leaves, func(leaf string, _ any) bool { return wanted[leaf] == nil })
		}
	}, false)
}

// newPlan leaves out taints and fields where our entry is in another version, unless it may move the entry.
func newPlan(
	child metav1.Object, current inherit.Object, decided inherit.Decision, old func() (inherit.Object, error),
	restrict func(*entry), mayMove bool,
) (*Plan, error) {
	managed, err := readManagedFields(child, current.Layout.Version)
	if err != nil {
		return nil, err
	}
	if old == nil {
		old = func() (inherit.Object, error) { return inherit.Object{}, errors.New("no update") }
	}
	p := &Plan{
		managed: managed, owned: fieldpath.NewSet(), overruled: fieldpath.NewSet(), adopted: fieldpath.NewSet(), old: sync.OnceValues(old),
	}
	p.places = places(current, p.fit(current, decided))
	switch {
	case !managed.otherVersion:
	case mayMove:
		p.move()
	default:
		p.places = slices.DeleteFunc(p.places, func(at place) bool { return !at.isMap() })
	}
	for _, at := range p.places {
		for i := range at.entries {
			p.entries = append(p.entries, &at.entries[i])
		}
	}
	if slices.ContainsFunc(p.entries, func(e *entry) bool { return p.isOurs(e) && e.FromOwner() }) {
		p.keep(decided)
	} else {
		p.adopt()
	}
	for _, e := range p.entries {
		restrict(e)
		p.decide(e)
	}
	p.keepUnknown()
	if p.unreadable != nil {
		return nil, p.unreadable
	}
	return p, nil
}

// move takes our entry for what it is in the version of the object. Labels and annotations are at the same paths in each version. Of the
// rest, what is there as it should be counts as ours, because an apply without it would remove it. What is stale goes with the apply: the
// API server converts what it compares, and keeps what others own too.
func (p *Plan) move() {
	rest := p.managed.ours.RecursiveDifference(known(p.places, place.isMap))
	p.managed.ours, p.managed.otherVersion, p.moves = p.managed.ours.Difference(rest), false, !rest.Empty()
	for _, at := range p.places {
		for _, e := range at.entries {
			if p.moves && !at.isMap() && !e.want.none() && e.want.equal(e.has) {
				e.wanted(p.managed.ours)
			}
		}
	}
}

// fit leaves out of what is desired what the child has no room for, once what is stale has gone from it.
func (p *Plan) fit(current inherit.Object, decided inherit.Decision) (admitted inherit.Object) {
	orphan := decided.Outcome == inherit.NoOwner // gives nothing up
	before := func() inherit.Object {
		if old, err := p.old(); err == nil && !orphan {
			return old
		}
		return current
	}
	stays := sync.OnceValue(func() map[inherit.Entry]any {
		return valuesOf(current, func(e *entry) bool { return !p.isOurs(e) || p.shared(e.path) })
	})
	admitted, p.leftOut = inherit.Fit(current, decided.Desired, before, func(e inherit.Entry) bool { return orphan || stays()[e] != nil })
	return admitted
}

// valuesOf returns those entries of an object that count.
func valuesOf(object inherit.Object, counts func(*entry) bool) map[inherit.Entry]any {
	values := map[inherit.Entry]any{}
	for _, at := range places(object, inherit.Object{}) {
		for _, e := range at.entries {
			if counts(&e) {
				values[e.Entry] = e.has.value
			}
		}
	}
	return values
}

// isOurs reports whether an entry that the child has is recorded as ours.
func (p *Plan) isOurs(e *entry) bool {
	return !e.has.none() && p.managed.ours.Has(e.path)
}

// keep makes an object without an owner keep what one brought before. What is not ours stays anyway.
func (p *Plan) keep(decided inherit.Decision) {
	for _, e := range p.entries {
		if e.want.none() && decided.Keeps(e.Entry) {
			e.want = e.has
		}
	}
}

// adopt makes a copy's content ours (docs/design.md §2). Only what belongs to the create is taken: managers that apply the same keys
// own them too. An object with taints of ours can still be a copy: a restored Machine gets those that it declares by annotation before
// it is adopted.
func (p *Plan) adopt() {
	adopted := fieldpath.NewSet()
	lost := len(p.managed.entries) == 0 && !p.managed.age.IsZero() // the API server keeps some for every object that it creates
	for _, e := range p.entries {
		switch {
		case e.want.none():
		case e.want.equal(e.has) && (lost || p.have(p.managed.created, e.path)) &&
			(e.claim != inherit.Yielding || !p.have(p.managed.later, e.path)): // else it would be given up again at once
			e.wanted(adopted)
		case e.claim == inherit.Owned:
			return
		}
	}
	if !adopted.Difference(p.managed.ours).Empty() { // a taint may be ours and the create's
		p.adopted = adopted
	}
}

// decide says what becomes of an entry (docs/design.md §2). What is ours and no longer declared goes, unless another manager owns it
// too. An entry that yields is not ours while another manager owns it too.
func (p *Plan) decide(e *entry) {
	ours := p.adopted.Has(e.path) || p.isOurs(e) && (e.claim != inherit.Yielding || !p.shared(e.path))
	switch {
	case e.has.none():
		e.after, e.owned = e.want, e.want
	case e.want.none() && ours && !p.shared(e.path):
		for leaf := range e.has.leaves { // another manager may have set one of them by an update
			p.overruled.Insert(e.leaf(leaf))
		}
	case e.want.none(), e.claim != inherit.Owned && !ours:
		e.after = e.has
	default:
		if e.after = p.merge(e); ours || e.changes() {
			e.owned = e.want
		}
	}
	if !e.owned.none() {
		e.wanted(p.owned)
	}
	if e.changes() {
		p.changes = append(p.changes, Change{e.Entry, strings.Join(e.place, "."), e.want.value})
	}
}

// shared reports whether another manager owns the field at path too.
func (p *Plan) shared(path fieldpath.Path) bool {
	return p.have(p.managed.created, path) || p.have(p.managed.later, path)
}

func (p *Plan) have(others func() (*fieldpath.Set, error), path fieldpath.Path) bool {
	set, err := others()
	if err != nil {
		p.unreadable = err
	}
	return err == nil && set.Has(path)
}

// merge returns an entry that is there already as a forced apply leaves it. Fields that are not wanted stay as they are, unless they
// are only ours.
func (p *Plan) merge(e *entry) item {
	if e.want.equal(e.has) {
		return e.has
	}
	if e.has.leaves == nil {
		p.overruled.Insert(e.path)
		return e.want
	}
	merged := item{e.want.value, maps.Clone(e.want.leaves)}
	for leaf, before := range e.has.leaves {
		now, declared := e.want.leaves[leaf]
		switch path := e.leaf(leaf); {
		case declared && now == before:
		case declared:
			p.overruled.Insert(path)
		case !p.managed.ours.Has(path) || p.shared(path):
			merged.leaves[leaf] = before
		}
	}
	return merged
}

// keepUnknown keeps those of our fields that are in no place: they are taints and in-place fields in another version of the API than
// the object's, until an apply moves our entry, or they are of another version of Heirloom.
func (p *Plan) keepUnknown() {
	if !p.owned.Equals(p.managed.ours) {
		p.owned = p.owned.Union(p.managed.ours.RecursiveDifference(known(p.places, func(place) bool { return true })))
	}
}

// known returns the paths of those places that count.
func known(places []place, counts func(place) bool) *fieldpath.Set {
	paths := fieldpath.NewSet()
	for _, at := range places {
		if counts(at) {
			paths.Insert(appendNames(nil, at.path))
		}
	}
	return paths
}

// Needed reports whether there is anything to write: content, or only who owns it.
func (p *Plan) Needed() bool {
	return p.moves || len(p.changes) > 0 || !p.owned.Equals(p.managed.ours)
}

// Adopts reports whether the plan takes existing content from the create of the object. Such a plan changes no content.
func (p *Plan) Adopts() bool { return !p.adopted.Empty() }

// GivesUp reports whether the plan gives up fields that are ours, whether or not they go from the object with that.
func (p *Plan) GivesUp() bool { return !p.managed.ours.Difference(p.owned).Empty() }

// LeftOut says what the child has no room for, so that it is not inherited, or nil.
func (p *Plan) LeftOut() error { return p.leftOut }

// Changes returns what changes in the child's content, in a stable order.
func (p *Plan) Changes() []Change { return p.changes }

// Kept returns those changes that put back what an update removes or replaces. If the old object cannot be read, there are none.
func (p *Plan) Kept() []Change {
	old, err := p.old()
	if err != nil {
		return nil
	}
	had := valuesOf(old, func(*entry) bool { return true })
	return slices.DeleteFunc(slices.Clone(p.changes), func(c Change) bool { return c.Value == nil || c.Value != had[c.Entry] })
}
