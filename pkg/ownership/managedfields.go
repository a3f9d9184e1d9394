// SPDX-License-Identifier: Apache-2.0

package ownership

import (
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
