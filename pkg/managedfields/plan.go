// SPDX-License-Identifier: Apache-2.0

// Package managedfields turns what a child inherits into a write that owns exactly what it adds (docs/design.md §2).
//
// A Plan is computed from the child, its managed fields and what it should inherit. It can be rendered in two ways:
// as JSON patch operations for an admission response, which include our entry in metadata.managedFields, or as the
// configuration of a server-side apply. Both lead to the same object.
//
// The package is pure: no client, no context, no logger.
package managedfields

import (
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Manager is the field manager of everything that Heirloom adds to Cluster API objects.
const Manager = "heirloom"

// Plan is the write that makes a child carry what it inherits, and own no more than that.
type Plan struct {
	changes []Change
	// changing are the places that change, and applied those of which we own something after the write.
	changing, applied []place
	// owned is what we own after the write. The write takes overruled from other managers, because it changes their value, and
	// adopted from the create of the object, which had them right.
	owned, overruled, adopted *fieldpath.Set
	// owns and overrules are the paths that become owned and overruled.
	owns, overrules []fieldpath.Path
	// managed is what the object's managed fields say now.
	managed managedFields
	leftOut error
	// unreadable says why it cannot be told what other managers own, where that mattered.
	unreadable error
}

// New computes the plan for a child. It returns an error where the child's managed fields cannot be read.
//
// During an update of the child, old returns what it had before; otherwise it is nil, or returns an error. What the update itself
// adds has no claim to the room that inherited entries need: an update that fills a Machine with taints cannot push inherited
// ones out. Then the API server refuses the update.
func New(
	child metav1.Object, current inherit.Object, decided inherit.Decision, old func() (inherit.Object, error),
) (*Plan, error) {
	return newPlan(child, current, decided, old, func(at place) []entry { return at.desired })
}

func newPlan(
	child metav1.Object, current inherit.Object, decided inherit.Decision, old func() (inherit.Object, error), want func(place) []entry,
) (*Plan, error) {
	fields, err := readManagedFields(child, current.Layout)
	if err != nil {
		return nil, err
	}
	plan := &Plan{adopted: fieldpath.NewSet(), managed: fields}
	all := places(current, plan.fit(current, decided, old))
	plan.keepOwned(all, decided)
	if fields.otherVersion {
		all = slices.DeleteFunc(all, func(at place) bool { _, isMap := at.form.(members); return !isMap })
	}
	plan.adopt(all)
	for _, at := range all {
		at.desired = want(at)
		plan.add(at)
	}
	plan.owned, plan.overruled = setOf(plan.owns), setOf(plan.overrules)
	plan.keepUnknown(all)
	if plan.unreadable != nil {
		return nil, plan.unreadable
	}
	return plan, nil
}

// keepUnknown keeps those of our fields that are in no place: they are in-place fields in another version of the API than
// the object's, or of another version of Heirloom. The loop, which always uses the same version, handles them.
func (p *Plan) keepUnknown(all []place) {
	known := fieldpath.NewSet()
	for _, at := range all {
		known.Insert(at.fields)
	}
	p.managed.ours.Iterate(func(path fieldpath.Path) {
		for i := range path {
			if known.Has(path[:i+1]) {
				return
			}
		}
		p.owned.Insert(path.Copy())
	})
}

// keepOwned makes an object without an owner keep what one brought before.
func (p *Plan) keepOwned(all []place, decided inherit.Decision) {
	if decided.Outcome != inherit.NoOwner || !p.hadOwner(all) {
		return
	}
	for i, at := range all {
		declared := byName(at.desired)
		for _, e := range at.among(p.managed.ours) {
			if _, ok := declared[e.name]; !ok && decided.Keeps(at.called(e)) {
				all[i].desired = append(all[i].desired, e)
			}
		}
	}
}

// hadOwner reports whether some of what is ours can only have come from an owner.
func (p *Plan) hadOwner(all []place) bool {
	return slices.ContainsFunc(all, func(at place) bool {
		return slices.ContainsFunc(at.current, func(e entry) bool { return p.managed.ours.Has(e.path) && at.called(e).FromOwner() })
	})
}

// Needed reports whether there is anything to write: content, or only who owns it.
func (p *Plan) Needed() bool {
	return len(p.changes) > 0 || !p.owned.Equals(p.managed.ours)
}

// LeftOut says what the child has no room for, so that it is not inherited, or nil.
func (p *Plan) LeftOut() error {
	return p.leftOut
}

// Changes returns what changes in the child's content, in a stable order.
func (p *Plan) Changes() []Change {
	return p.changes
}

// add plans one place. An owner is authoritative for what it declares and for nothing else; what the child already
// has with the right value belongs to the manager that set it; what is ours and no longer declared goes, unless another manager
// owns it too (docs/design.md §2).
func (p *Plan) add(at place) {
	desired, present := byName(at.desired), byName(at.current)
	for _, e := range at.current {
		want, declared := desired[e.name]
		owned := p.ownsNow(e, want)
		switch {
		case declared && want.claim != inherit.Owned && !owned:
			at.after = append(at.after, e)
		case declared:
			merged, changed := p.merge(at, e, want)
			at.after = append(at.after, merged)
			if changed || owned {
				at.ours = append(at.ours, want)
			}
		case !owned || !p.release(at, e):
			at.after = append(at.after, e)
		}
	}
	for _, want := range at.desired {
		if _, ok := present[want.name]; !ok {
			at.after, at.ours = append(at.after, want), append(at.ours, want)
			p.changes = append(p.changes, at.change(want, want.value))
		}
	}
	for _, e := range at.ours {
		p.owns = pathsOf(p.owns, e)
	}
	if len(at.ours) > 0 {
		p.applied = append(p.applied, at)
	}
	if !slices.EqualFunc(at.after, at.current, entry.equal) {
		p.changing = append(p.changing, at)
	}
}

// ownsNow reports whether an entry that is there is ours to change. One that yields is not while another manager owns it too.
func (p *Plan) ownsNow(e, want entry) bool {
	return p.adopted.Has(e.path) || p.managed.ours.Has(e.path) && (want.claim != inherit.Yielding || !p.shared(e.path))
}

// shared reports whether another manager owns the field at path too.
func (p *Plan) shared(path fieldpath.Path) bool {
	others, err := p.managed.others()
	if err != nil {
		p.unreadable = err
		return false
	}
	return others.Has(path)
}

// merge returns an entry that is there already as a forced apply of want leaves it. Fields that want does not have stay
// as they are, unless they are only ours.
func (p *Plan) merge(at place, e, want entry) (merged entry, changed bool) {
	merged = want
	if len(e.leaves) == 0 {
		if want.value != e.value {
			p.overrules = append(p.overrules, e.path)
		}
	} else {
		merged.leaves = maps.Clone(want.leaves)
	}
	for leaf, before := range e.leaves {
		now, declared := want.leaves[leaf]
		if declared && now == before {
			continue
		}
		path := leafPath(e, leaf)
		switch {
		case declared:
			p.overrules = append(p.overrules, path)
		case !p.managed.ours.Has(path) || p.shared(path):
			merged.leaves[leaf] = before
		}
	}
	if merged.equal(e) {
		return e, false
	}
	p.changes = append(p.changes, at.change(want, want.value))
	return merged, true
}

// release gives up an entry that is no longer declared, and reports whether it goes from the child with that.
func (p *Plan) release(at place, e entry) bool {
	if p.shared(e.path) {
		return false
	}
	for leaf := range e.leaves { // another manager may have set one of them by an update
		if path := leafPath(e, leaf); p.shared(path) {
			p.overrules = append(p.overrules, path)
		}
	}
	p.changes = append(p.changes, at.change(e, nil))
	return true
}

func byName(entries []entry) map[string]entry {
	index := make(map[string]entry, len(entries))
	for _, e := range entries {
		index[e.name] = e
	}
	return index
}

// fit leaves out of what is desired what the child has no room for, once what is stale has gone from it. old returns what the child had
// before an update; it may be nil.
func (p *Plan) fit(current inherit.Object, decided inherit.Decision, old func() (inherit.Object, error)) inherit.Object {
	before := func() inherit.Object {
		if old != nil && decided.Outcome != inherit.NoOwner {
			if known, err := old(); err == nil {
				return known
			}
		}
		return current
	}
	stays := sync.OnceValue(func() sets.Set[inherit.Entry] { return p.notOnlyOurs(current) })
	admitted, leftOut := inherit.Fit(current, decided.Desired, before, func(e inherit.Entry) bool {
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

// beforeFirstApply is the manager to which the API server gives everything of an object that has lost its managed fields.
const beforeFirstApply = "before-first-apply"

// adopt makes a copy's content ours. A copy is an object that carries all that it should inherit, in the values that its
// owner declares, exactly as one create has left it, and in which nothing is ours: it comes from a backup without managed
// fields, or from a provider that copies a template once. Nothing would ever remove those keys again (docs/design.md §2).
//
// Managers that apply the same keys own them too, now and later; only what belongs to the create is taken. An object with taints
// of ours can still be a copy: a restored Machine gets those that it declares by annotation before it is adopted.
func (p *Plan) adopt(all []place) {
	if p.hadOwner(all) {
		return
	}
	created, known := p.managed.ofCreate()
	if !known {
		return
	}
	var adopted []fieldpath.Path
	for _, at := range all {
		has := byName(at.current)
		for _, want := range at.desired {
			e, present := has[want.name]
			same := present && want.equal(e) && (p.managed.lost() || created.Has(e.path)) &&
				(want.claim != inherit.Yielding || !p.managed.sinceCreate(e.path)) // else it would be given up again at once
			if !same && want.claim != inherit.Owned {
				continue
			}
			if !same {
				return
			}
			adopted = pathsOf(adopted, e)
		}
	}
	if set := setOf(adopted); !set.Difference(p.managed.ours).Empty() { // a taint may be ours and the create's
		p.adopted = set
	}
}

// Adopts reports whether the plan takes existing content from the create of the object. Such a plan changes no content.
func (p *Plan) Adopts() bool {
	return !p.adopted.Empty()
}

// GivesUp reports whether the plan gives up fields that are ours, whether or not they go from the object with that.
func (p *Plan) GivesUp() bool {
	return !p.managed.ours.Difference(p.owned).Empty()
}

// NewRemoval computes a plan that only gives up, and adopts, what New's does: nothing is added and no value changes. A
// patch makes its sender own as Update what it adds or changes, so those are left to an apply.
func NewRemoval(child metav1.Object, current inherit.Object, decided inherit.Decision) (*Plan, error) {
	return newPlan(child, current, decided, nil, func(at place) []entry {
		has := byName(at.current)
		var kept []entry
		for _, want := range at.desired {
			if e, ok := has[want.name]; ok {
				e.claim, e.leaves = want.claim, maps.Clone(e.leaves)
				maps.DeleteFunc(e.leaves, func(leaf, _ string) bool { _, wanted := want.leaves[leaf]; return !wanted })
				kept = append(kept, e)
			}
		}
		return kept
	})
}

// ofCreate returns what belongs to the create of the object. It is not known where managed fields cannot be read, or where
// the object was created by an apply.
func (m managedFields) ofCreate() (*fieldpath.Set, bool) {
	var sets []*fieldpath.Set
	for _, entry := range m.entries {
		if !OfCreate(entry, m.created) {
			continue
		}
		set, err := fieldsOf(entry)
		if err != nil {
			return nil, false
		}
		sets = append(sets, set)
	}
	all := union(sets)
	return all, m.lost() || !all.Empty()
}

// sinceCreate reports whether another manager has come to own a field since the create, or whether that cannot be told.
func (m managedFields) sinceCreate(path fieldpath.Path) bool {
	return slices.ContainsFunc(m.entries, func(entry metav1.ManagedFieldsEntry) bool {
		if IsOurs(entry) || OfCreate(entry, m.created) {
			return false
		}
		set, err := fieldsOf(entry)
		return err != nil || set.Has(path)
	})
}

// lost reports whether the object has lost its managed fields. The API server keeps some for every object that it creates.
func (m managedFields) lost() bool {
	return len(m.entries) == 0 && !m.created.IsZero()
}

// withoutAdopted returns an entry's fields without those that are adopted from it.
func (p *Plan) withoutAdopted(entry metav1.ManagedFieldsEntry, set *fieldpath.Set) *fieldpath.Set {
	if p.adopted.Empty() || !OfCreate(entry, p.managed.created) {
		return set
	}
	return set.Difference(p.adopted)
}
