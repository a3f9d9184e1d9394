// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Manager is the field manager of everything that Heirloom adds to Cluster API objects.
const Manager = "heirloom"

// Plan is the write that makes a child carry what it inherits, and own no more than that.
type Plan struct {
	changes []Change
	// results holds every place that changes, with its entries after the write.
	results []result
	// owned is what we own after the write, as a set and by place.
	owned        *fieldpath.Set
	ownedEntries []result
	// overruled are fields that the write takes from other managers, because it changes their value.
	overruled *fieldpath.Set
	// overrules are the paths that become overruled.
	overrules []fieldpath.Path
	// adopted are fields that the write takes from the create of the object, which had them right.
	adopted *fieldpath.Set
	// managed is what the object's managed fields say now.
	managed managedFields
	leftOut error
}

type result struct {
	place   place
	entries []entry
}

// New computes the plan for a child. It returns an error where the child's managed fields cannot be read.
func New(child metav1.Object, current, desired inherit.Object) (*Plan, error) {
	return newPlan(child, current, desired, nil, func(at place) []entry { return at.desired })
}

// NewUpdate computes the plan for a child that somebody is updating. old returns what the child had before. What the update
// itself adds has no claim to the room that inherited things need: whoever fills a Machine with taints of their own cannot push
// inherited ones out with that. Then the API server refuses the update.
func NewUpdate(child metav1.Object, current, desired inherit.Object, old func() (inherit.Object, error)) (*Plan, error) {
	return newPlan(child, current, desired, old, func(at place) []entry { return at.desired })
}

func newPlan(
	child metav1.Object, current, desired inherit.Object, old func() (inherit.Object, error), want func(place) []entry,
) (*Plan, error) {
	fields, err := readManagedFields(child, current.Layout)
	if err != nil {
		return nil, err
	}
	plan := &Plan{owned: fieldpath.NewSet(), adopted: fieldpath.NewSet(), managed: fields}
	if desired, err = plan.admissible(current, desired, old); err != nil {
		return nil, err
	}
	all := places(current, desired)
	if desired.Orphan {
		keepOwned(all, fields.ours, desired.TaintsRefused)
	}
	if fields.otherVersion {
		all = slices.DeleteFunc(all, func(at place) bool { return at.versioned })
	}
	plan.adopt(all)
	for _, at := range all {
		at.desired = want(at)
		if err := plan.add(at); err != nil {
			return nil, err
		}
	}
	plan.overruled = setOf(plan.overrules)
	plan.keepUnknown(all)
	return plan, nil
}

// keepUnknown keeps those of our fields that are in no place: they are in-place fields in another version of the API than
// the object's, or of another version of Heirloom. The loop, which always uses the same version, sees to them.
func (p *Plan) keepUnknown(all []place) {
	known := fieldpath.NewSet()
	for _, at := range all {
		known.Insert(at.fieldPath())
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

// keepOwned makes an orphan keep what an owner brought, apart from taints that Cluster API would refuse.
func keepOwned(all []place, ours *fieldpath.Set, taintsRefused bool) {
	if !hadOwner(all, ours) {
		return
	}
	for i, at := range all {
		if at.taints && taintsRefused {
			continue
		}
		declared := byName(at.desired)
		for _, e := range at.among(ours) {
			if _, ok := declared[e.name]; !ok && !e.ofNoOwner() {
				all[i].desired = append(all[i].desired, e)
			}
		}
	}
}

// hadOwner reports whether what is ours came from an owner. Taints alone are no sign of that: those that are declared by
// annotation become ours without one. Nor is what cluster-autoscaler is told.
func hadOwner(all []place, ours *fieldpath.Set) bool {
	return slices.ContainsFunc(all, func(at place) bool {
		return !at.taints && slices.ContainsFunc(at.among(ours), func(e entry) bool { return !e.ofNoOwner() })
	})
}

// Needed reports whether there is anything to write: content, or only who owns it.
func (p *Plan) Needed() bool {
	return len(p.changes) > 0 || !p.owned.Equals(p.managed.ours)
}

// LeftOut says what an API server would refuse in the child, so that it is not inherited, or nil.
func (p *Plan) LeftOut() error {
	return p.leftOut
}

// Changes returns what changes in the child's content, in a stable order.
func (p *Plan) Changes() []Change {
	return p.changes
}

// add plans one place. An owner is authoritative for what it declares and for nothing else; what the child already
// has with the right value belongs to whoever brought it; what is ours and no longer declared goes, unless somebody
// else owns it too (docs/design.md §2).
func (p *Plan) add(at place) error {
	desired, present := byName(at.desired), byName(at.current)
	var entries, ours []entry
	for _, e := range at.current {
		want, declared := desired[e.name]
		owned, err := p.owns(at, e, want)
		if err != nil {
			return err
		}
		switch {
		case declared && want.weak && !owned:
			entries = append(entries, e)
		case declared:
			merged, changed, err := p.merge(at, e, want)
			if err != nil {
				return err
			}
			entries = append(entries, merged)
			if changed || owned {
				ours = append(ours, want)
			}
		default:
			removed, err := p.release(at, e, owned)
			if err != nil {
				return err
			}
			if !removed {
				entries = append(entries, e)
			}
		}
	}
	for _, want := range at.desired {
		if _, ok := present[want.name]; !ok {
			entries, ours = append(entries, want), append(ours, want)
			p.changed(at, want.name, want.value)
		}
	}
	p.own(at, ours)
	if !slices.EqualFunc(entries, at.current, entry.equal) {
		p.results = append(p.results, result{place: at, entries: entries})
	}
	return nil
}

// owns reports whether an entry that is there is ours to change. One that yields is not while somebody else owns it too.
func (p *Plan) owns(at place, e, want entry) (bool, error) {
	path := at.pathTo(e)
	if p.adopted.Has(path) || !p.managed.ours.Has(path) || !want.yields {
		return p.adopted.Has(path) || p.managed.ours.Has(path), nil
	}
	shared, err := p.managed.shared(path)
	return !shared, err
}

// merge returns an entry that is there already as a forced apply of want leaves it. Fields that want does not have stay
// as they are, unless they are only ours.
func (p *Plan) merge(at place, e, want entry) (merged entry, changed bool, err error) {
	if len(e.leaves) == 0 {
		if want.value != e.value {
			p.overrules = append(p.overrules, at.pathTo(e))
			p.changed(at, want.name, want.value)
		}
		return want, want.value != e.value, nil
	}
	merged = e
	merged.leaves = maps.Clone(want.leaves)
	for leaf, before := range e.leaves {
		path := at.leafPath(e, leaf)
		if now, declared := want.leaves[leaf]; declared {
			if now != before {
				p.overrules = append(p.overrules, path)
			}
			continue
		}
		stale := p.managed.ours.Has(path)
		if stale {
			shared, err := p.managed.shared(path)
			if err != nil {
				return e, false, err
			}
			stale = !shared
		}
		if !stale {
			merged.leaves[leaf] = before
		}
	}
	if merged.equal(e) {
		return e, false, nil
	}
	p.changed(at, want.name, want.value)
	return merged, true, nil
}

// release gives up an entry that is no longer declared, and reports whether it goes from the child with that.
func (p *Plan) release(at place, e entry, owned bool) (removed bool, err error) {
	if !owned {
		return false, nil
	}
	shared, err := p.managed.shared(at.pathTo(e))
	if err != nil || shared {
		return false, err
	}
	for leaf := range e.leaves { // somebody else may have set one of them by an update
		theirs, err := p.managed.shared(at.leafPath(e, leaf))
		if err != nil {
			return false, err
		}
		if theirs {
			p.overrules = append(p.overrules, at.leafPath(e, leaf))
		}
	}
	p.changed(at, e.name, nil)
	return true, nil
}

func (p *Plan) own(at place, ours []entry) {
	sorted := slices.SortedFunc(slices.Values(ours), func(a, b entry) int { return a.element.Compare(b.element) })
	for _, e := range sorted { // what is inserted out of order moves all that comes after it
		p.owned.Insert(at.pathTo(e))
		for leaf := range e.leaves {
			p.owned.Insert(at.leafPath(e, leaf))
		}
	}
	if len(ours) > 0 {
		p.ownedEntries = append(p.ownedEntries, result{place: at, entries: ours})
	}
}

func (p *Plan) changed(at place, name string, to any) {
	p.changes = append(p.changes, Change{Place: strings.Join(at.path, "."), Name: name, Value: to})
}

func byName(entries []entry) map[string]entry {
	index := make(map[string]entry, len(entries))
	for _, e := range entries {
		index[e.name] = e
	}
	return index
}
