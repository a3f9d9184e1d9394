// SPDX-License-Identifier: Apache-2.0

package managedfields

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// managedFields is metadata.managedFields. Only our own entry is read at once: most admissions need no other.
type managedFields struct {
	entries []metav1.ManagedFieldsEntry
	// layout is where the object has everything in the version of the API in which it is looked at.
	layout inherit.Layout
	// ours is what our own entry lists, at position index; index is -1 where we have none.
	ours  *fieldpath.Set
	index int
	// otherVersion says that our entry is in another version of a control plane's API, which may have other paths.
	otherVersion bool
	// created is when the object was; zero while it is being created.
	created time.Time
	// others is what the entries of all other managers list. They are read once, and only when needed.
	others func() (*fieldpath.Set, error)
}

func readManagedFields(object metav1.Object, layout inherit.Layout) (managedFields, error) {
	read := managedFields{
		entries: object.GetManagedFields(), layout: layout, ours: fieldpath.NewSet(), index: -1, created: object.GetCreationTimestamp().Time,
	}
	for i, entry := range read.entries {
		if !IsOurs(entry) {
			continue
		}
		set, err := fieldsOf(entry)
		if err != nil {
			return managedFields{}, err
		}
		read.ours, read.index, read.otherVersion = set, i, !inVersion(entry, layout.Version)
	}
	read.others = sync.OnceValues(read.fieldsOfOthers)
	return read, nil
}

func (m managedFields) fieldsOfOthers() (*fieldpath.Set, error) {
	var all []*fieldpath.Set
	for i, entry := range m.entries {
		if i == m.index {
			continue
		}
		set, err := fieldsOf(entry)
		if err != nil {
			return nil, err
		}
		all = append(all, set)
	}
	return union(all), nil
}

// inVersion reports whether an entry has its fields at the paths of this version of the API. If the version is not known, it has.
func inVersion(entry metav1.ManagedFieldsEntry, version string) bool {
	return version == "" || version == entry.APIVersion[strings.LastIndex(entry.APIVersion, "/")+1:]
}

func fieldsOf(entry metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := fieldpath.NewSet()
	if entry.FieldsV1 == nil || len(entry.FieldsV1.GetRawBytes()) == 0 {
		return set, nil
	}
	err := bounded(entry.FieldsV1.GetRawBytes())
	if err == nil {
		err = set.FromJSON(entry.FieldsV1.GetRawReader())
	}
	if err != nil {
		return nil, fmt.Errorf("reading metadata.managedFields of manager %q: %w", entry.Manager, err)
	}
	return set, nil
}

// union returns the union of these sets. One after the other would copy the first of them once for each of the others, and an object that
// nobody has validated may have a hundred thousand.
func union(sets []*fieldpath.Set) *fieldpath.Set {
	switch len(sets) {
	case 0:
		return fieldpath.NewSet()
	case 1:
		return sets[0]
	}
	half := len(sets) / 2
	return union(sets[:half]).Union(union(sets[half:]))
}

// setOf returns the set of these paths. A set is a sorted list: what is inserted out of order moves all that comes after it.
func setOf(paths []fieldpath.Path) *fieldpath.Set {
	slices.SortFunc(paths, fieldpath.Path.Compare)
	return fieldpath.NewSet(paths...)
}

// IsOurs reports whether an entry records what Heirloom applied.
func IsOurs(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == Manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
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

// Recorded reports whether managed fields say that Heirloom has written the object: as what it applied, or as an update.
func Recorded(entries []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(entries, recordsUs)
}

func recordsUs(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == Manager && entry.Subresource == ""
}

// AppliedIn returns the version of the API in which our fields are recorded, or "" where nothing is ours.
func AppliedIn(entries []metav1.ManagedFieldsEntry) string {
	if i := slices.IndexFunc(entries, IsOurs); i >= 0 {
		return entries[i].APIVersion
	}
	return ""
}

// Forget returns managed fields without our entries. A list that would be empty has one empty entry instead: the API server
// takes an empty list for one that was left out, and keeps what it has.
func Forget(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	kept := slices.DeleteFunc(slices.Clone(entries), recordsUs)
	if len(kept) == 0 && len(entries) > 0 {
		return []metav1.ManagedFieldsEntry{{}}
	}
	return kept
}

const (
	// surelyCheap is how many bytes of managed fields can be read in whatever order they are.
	surelyCheap = 96 << 10
	// mostMoves is how many elements may be moved to read managed fields. API servers write them nearly in order.
	mostMoves = 1 << 24
)

// bounded returns an error where it would take far more than its length to read the JSON of managed fields. Each element that
// is not in order moves all those after it on its level, so a forged review could keep a CPU busy for minutes.
func bounded(fields []byte) error {
	if len(fields) <= surelyCheap {
		return nil
	}
	type level struct {
		count int
		last  *fieldpath.PathElement
	}
	var levels []level
	decoder, moves := json.NewDecoder(bytes.NewReader(fields)), 0
	for decoder.More() || len(levels) > 0 {
		token, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("reading the fields: %w", err)
		}
		switch token := token.(type) {
		case json.Delim:
			switch token {
			case '{':
				levels = append(levels, level{})
			case '}':
				levels = levels[:len(levels)-1]
			default:
				return errors.New("a list among the fields")
			}
		case string:
			if len(levels) == 0 {
				return errors.New("a text in place of the fields")
			}
			in := &levels[len(levels)-1]
			element, err := fieldpath.DeserializePathElement(token)
			if err != nil {
				continue // it is passed over when the set is read, or the error is told then
			}
			if in.last != nil && element.Compare(*in.last) < 0 {
				moves += in.count
			} else {
				in.last = &element
			}
			in.count++
		default:
			return fmt.Errorf("%v among the fields", token)
		}
		if moves > mostMoves {
			return errors.New("the fields are far out of order")
		}
	}
	return nil
}
