// SPDX-License-Identifier: Apache-2.0

// Package managedfields turns a decision about a child into a write that owns exactly the entries that it adds (docs/design.md §2).
//
// A Plan is computed from the child, its managed fields and its desired content. It can be rendered in two ways, which lead to the same
// object: as JSON patch operations for an admission response, which include our entry in metadata.managedFields, or as the configuration of
// a server-side apply.
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

// Plan is the write after which a child has its inherited entries, and Heirloom owns no other fields of it.
type Plan struct {
	places  []place
	entries []*entry // of all places
	changes []Change
	// owned are the fields that we own after the write. The write takes the overruled fields from other managers, because it changes their
	// values, and the adopted fields from the create of the object, which already gave them the right values.
	owned, overruled, adopted *fieldpath.Set
	// managed holds the managed fields of the object before the write.
	managed managedFields
	// moves says that the write moves our entry from another version of the API, in which it lists more than labels and annotations.
	moves bool
	// old returns the content that the child had before an update, and an error for any other write.
	old     func() (inherit.Object, error)
	leftOut error
	// unreadable is the error of reading the fields of other managers, if the plan depends on them.
	unreadable error
}

// Change is a label, an annotation, a taint or a field that a plan adds, replaces or removes.
type Change struct {
	inherit.Entry
	// Place is the dotted path of the map, list or field, such as "metadata.labels".
	Place string
	// Value is the new value; nil if the entry is removed.
	Value any
}

// String describes the entry in the words of a warning, such as `label "team"`.
func (c Change) String() string {
	where := "template "
	if c.Own {
		where = ""
	}
	return fmt.Sprintf("%s%s %q", where, c.What, c.Name)
}

// New computes the plan for a child. It returns an error if the child's managed fields cannot be read.
//
// During an update of the child, old returns the content before the update; otherwise old is nil. Entries that the update itself adds have
// no claim to the room that inherited entries need: if an update fills a Machine with taints, the API server refuses it.
func New(child metav1.Object, current inherit.Object, decided inherit.Decision, old func() (inherit.Object, error)) (*Plan, error) {
	applies := old == nil && !child.GetCreationTimestamp().Time.IsZero() // not in admission
	return newPlan(child, current, decided, old, func(*entry) {}, applies && decided.Outcome == inherit.Inherits)
}

// NewRemoval computes the part of New's plan that only releases and adopts fields: it adds nothing and changes no value. Additions and
// changes are left to an apply, because the sender of a patch would own these fields as Update.
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

// newPlan leaves out taints and in-place fields if our entry in managed fields is of another version of the API, unless it may move the
// entry.
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

// move converts our entry in managed fields to the version of the object. Labels and annotations have the same paths in each version.
// Taints and in-place fields that already have their desired values count as ours, because an apply without them would remove them. The
// apply removes stale fields: the API server converts the fields before it compares them, and keeps fields that other managers also own.
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

// fit leaves out desired entries for which the child has no room. Stale entries of ours take no room, because the write removes them.
func (p *Plan) fit(current inherit.Object, decided inherit.Decision) (admitted inherit.Object) {
	orphan := decided.Outcome == inherit.NoOwner // keeps inherited entries
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

// valuesOf returns the values of the entries that counts selects.
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

// isOurs reports whether the child has an entry and its managed fields record the entry as ours.
func (p *Plan) isOurs(e *entry) bool {
	return !e.has.none() && p.managed.ours.Has(e.path)
}

// keep makes an object without an owner keep the entries that it inherited before. Entries of other managers stay anyway.
func (p *Plan) keep(decided inherit.Decision) {
	for _, e := range p.entries {
		if e.want.none() && decided.Keeps(e.Entry) {
			e.want = e.has
		}
	}
}

// adopt takes over the inherited entries of a copy (docs/design.md §2), which the create of the object left exactly as desired. It takes
// them from the create only: managers that apply the same keys continue to own them. An object with taints of ours can still be a copy:
// even without an owner, a restored Machine gets the taints that it declares by annotation.
func (p *Plan) adopt() {
	adopted := fieldpath.NewSet()
	lost := len(p.managed.entries) == 0 && !p.managed.age.IsZero() // an API server records managed fields of every object that it creates
	for _, e := range p.entries {
		switch {
		case e.want.none():
		case e.want.equal(e.has) && (lost || p.have(p.managed.created, e.path)) &&
			(e.claim != inherit.Yielding || !p.have(p.managed.later, e.path)): // otherwise the next write would release it
			e.wanted(adopted)
		case e.claim == inherit.Owned:
			return
		}
	}
	if !adopted.Difference(p.managed.ours).Empty() { // a taint may belong to us and to the create
		p.adopted = adopted
	}
}

// decide computes the content and the ownership of an entry after the write (docs/design.md §2). An entry of ours that is no longer
// declared is removed, unless another manager also owns it. A yielding entry is not ours while another manager also owns it.
func (p *Plan) decide(e *entry) {
	ours := p.adopted.Has(e.path) || p.isOurs(e) && (e.claim != inherit.Yielding || !p.shared(e.path))
	switch {
	case e.has.none():
		e.after, e.owned = e.want, e.want
	case e.want.none() && ours && !p.shared(e.path):
		for leaf := range e.has.leaves { // another manager may have set the leaf by an update
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

// shared reports whether another manager also owns the field at path.
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

// merge returns the content of an entry that the child already has, as a forced apply leaves it. Fields of the entry that are not desired
// stay as they are, unless only we own them.
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

// keepUnknown keeps our ownership of fields that belong to no place: taints and in-place fields in another version of the API than the
// object's, until an apply moves our entry, or fields of another version of Heirloom.
func (p *Plan) keepUnknown() {
	if !p.owned.Equals(p.managed.ours) {
		p.owned = p.owned.Union(p.managed.ours.RecursiveDifference(known(p.places, func(place) bool { return true })))
	}
}

// known returns the paths of the places that counts selects.
func known(places []place, counts func(place) bool) *fieldpath.Set {
	paths := fieldpath.NewSet()
	for _, at := range places {
		if counts(at) {
			paths.Insert(appendNames(nil, at.path))
		}
	}
	return paths
}

// Needed reports whether the plan changes anything: content, or only ownership.
func (p *Plan) Needed() bool {
	return p.moves || len(p.changes) > 0 || !p.owned.Equals(p.managed.ours)
}

// Adopts reports whether the plan takes existing content from the create of the object. The object then already has all desired Owned
// entries.
func (p *Plan) Adopts() bool { return !p.adopted.Empty() }

// Overrules reports whether the plan changes values that the object has.
func (p *Plan) Overrules() bool { return !p.overruled.Empty() }

// GivesUp reports whether the plan releases fields of ours, whether or not it also removes them from the object.
func (p *Plan) GivesUp() bool { return !p.managed.ours.Difference(p.owned).Empty() }

// LeftOut returns an error about the entries that are not inherited because the child has no room for them, or nil.
func (p *Plan) LeftOut() error { return p.leftOut }

// Changes returns the changes of the child's content, in a stable order.
func (p *Plan) Changes() []Change { return p.changes }

// Kept returns the changes that put back entries which an update removes or replaces. It returns nil if the old object cannot be read.
func (p *Plan) Kept() []Change {
	old, err := p.old()
	if err != nil {
		return nil
	}
	had := valuesOf(old, func(*entry) bool { return true })
	return slices.DeleteFunc(slices.Clone(p.changes), func(c Change) bool { return c.Value == nil || c.Value != had[c.Entry] })
}
