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
)

// managedFields is metadata.managedFields. Only our own entry is read at once: most admissions need no other.
type managedFields struct {
	entries []metav1.ManagedFieldsEntry
	// ours is what our own entry lists, at position index; index is -1 where we have none.
	ours  *fieldpath.Set
	index int
	// created is when the object was; zero while it is being created.
	created time.Time
	// others is what the entries of all other managers list. They are read once, and only if somebody asks.
	others func() (*fieldpath.Set, error)
}

func readManagedFields(object metav1.Object) (managedFields, error) {
	read := managedFields{
		entries: object.GetManagedFields(), ours: fieldpath.NewSet(), index: -1, created: object.GetCreationTimestamp().Time,
	}
	for i, entry := range read.entries {
		if !IsOurs(entry) {
			continue
		}
		set, err := fieldsOf(entry)
		if err != nil {
			return managedFields{}, err
		}
		read.ours, read.index = set, i
	}
	read.others = sync.OnceValues(func() (*fieldpath.Set, error) { return fieldsExcept(read.entries, read.index) })
	return read, nil
}

// inVersion reports whether our entry, if there is one, is in this version of the API.
func (m managedFields) inVersion(version string) bool {
	return m.index < 0 || version == "" || strings.HasSuffix(m.entries[m.index].APIVersion, "/"+version)
}

// shared reports whether another manager owns the field at path too.
func (m managedFields) shared(path fieldpath.Path) (bool, error) {
	others, err := m.others()
	return err == nil && others.Has(path), err
}

func fieldsExcept(entries []metav1.ManagedFieldsEntry, index int) (*fieldpath.Set, error) {
	all := fieldpath.NewSet()
	for i, entry := range entries {
		if i == index {
			continue
		}
		set, err := fieldsOf(entry)
		if err != nil {
			return nil, err
		}
		all = all.Union(set)
	}
	return all, nil
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

// setOf returns the set of these paths. A set is a sorted list: what is inserted out of order moves all that comes after it.
func setOf(paths []fieldpath.Path) *fieldpath.Set {
	slices.SortFunc(paths, fieldpath.Path.Compare)
	return fieldpath.NewSet(paths...)
}

// IsOurs reports whether an entry records what Heirloom applied.
func IsOurs(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == Manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
}
