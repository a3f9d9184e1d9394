// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

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

// OfCreate reports whether an entry of managed fields records what a create brought, and nothing that came later. created
// is when that was; it is zero while the object is being created.
func OfCreate(entry metav1.ManagedFieldsEntry, created time.Time) bool {
	if entry.Operation != metav1.ManagedFieldsOperationUpdate || entry.Subresource != "" {
		return false
	}
	// Both times are in whole seconds and are not taken at the same moment.
	return entry.Manager == beforeFirstApply || created.IsZero() ||
		entry.Time != nil && entry.Time.Sub(created).Abs() <= time.Second
}

// withoutAdopted returns an entry's fields without those that are adopted from it.
func (p *Plan) withoutAdopted(entry metav1.ManagedFieldsEntry, set *fieldpath.Set) *fieldpath.Set {
	if p.adopted.Empty() || !OfCreate(entry, p.managed.created) {
		return set
	}
	return set.Difference(p.adopted)
}

// Trimmed returns as much of an object's managed fields as a plan needs to tell what is ours, what yields, and what might be
// adopted. Whether it is, only all of them can tell. yielding are the annotations that need no owner and yield.
func Trimmed(entries []metav1.ManagedFieldsEntry, created time.Time, yielding []string) []metav1.ManagedFieldsEntry {
	i := slices.IndexFunc(entries, IsOurs)
	adoptable := i < 0 || ofNoOwner(entries[i], yielding)
	var kept []metav1.ManagedFieldsEntry
	for j, entry := range entries {
		if j == i || names(entry, yielding) || adoptable && OfCreate(entry, created) {
			kept = append(kept, entry)
		}
	}
	if len(entries) > 0 {
		// One more stands for the others: that there are some, and when the last of them changed (LastChanged).
		kept = append(kept, metav1.ManagedFieldsEntry{Time: lastChange(entries)})
	}
	return kept
}

// LastChanged returns when somebody else than Heirloom last changed the metadata or the spec of an object, as far as its managed
// fields tell; zero if they do not.
func LastChanged(object metav1.Object) time.Time {
	if last := lastChange(object.GetManagedFields()); last != nil {
		return last.Time
	}
	return time.Time{}
}

func lastChange(entries []metav1.ManagedFieldsEntry) *metav1.Time {
	var last *metav1.Time
	for _, entry := range entries {
		if entry.Subresource == "" && entry.Manager != Manager && entry.Time != nil && (last == nil || last.Before(entry.Time)) {
			last = entry.Time
		}
	}
	return last
}

// names reports whether an entry may have one of these fields.
func names(entry metav1.ManagedFieldsEntry, fields []string) bool {
	return entry.FieldsV1 != nil && slices.ContainsFunc(fields, func(name string) bool {
		return strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+name+`"`)
	})
}

// ofNoOwner reports whether an entry has nothing that must come from an owner: only taints, and what yields.
func ofNoOwner(managed metav1.ManagedFieldsEntry, yielding []string) bool {
	set, err := fieldsOf(managed)
	only := err == nil
	if only {
		set.Iterate(func(path fieldpath.Path) {
			only = only && slices.ContainsFunc(path, func(e fieldpath.PathElement) bool {
				return e.FieldName != nil && (*e.FieldName == "taints" || slices.Contains(yielding, *e.FieldName))
			})
		})
	}
	return only
}
