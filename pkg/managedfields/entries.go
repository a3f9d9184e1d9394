// SPDX-License-Identifier: Apache-2.0

package managedfields

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// managedFields is metadata.managedFields. Only our own entry is parsed at once, because most admissions need no other.
type managedFields struct {
	entries []metav1.ManagedFieldsEntry
	// ours are the fields of our own entry, which is at position index; index is -1 if there is no entry of ours.
	ours  *fieldpath.Set
	index int
	// otherVersion says that our entry is of another version of the API, in which a control plane may have other paths.
	otherVersion bool
	// age is the time at which the object was created; zero while it is being created.
	age time.Time
	// created returns the fields that other managers own since the create of the object, and later the fields that they have owned only
	// since a later write.
	created, later func() (*fieldpath.Set, error)
}

func readManagedFields(object metav1.Object, version string) (m managedFields, err error) {
	m = managedFields{entries: object.GetManagedFields(), ours: fieldpath.NewSet(), age: object.GetCreationTimestamp().Time}
	if m.index = slices.IndexFunc(m.entries, IsOurs); m.index >= 0 {
		entry := m.entries[m.index]
		m.otherVersion = version != entry.APIVersion[strings.LastIndex(entry.APIVersion, "/")+1:]
		m.ours, err = fieldsOf(entry)
	}
	m.created, m.later = m.others(true), m.others(false)
	return m, err
}

// others returns a function that reads the fields of other managers once: the fields in entries of the create, or in all other entries.
func (m managedFields) others(ofCreate bool) func() (*fieldpath.Set, error) {
	return sync.OnceValues(func() (*fieldpath.Set, error) {
		var sets []*fieldpath.Set
		for i, entry := range m.entries {
			if i == m.index || OfCreate(entry, m.age) != ofCreate {
				continue
			}
			set, err := fieldsOf(entry)
			if err != nil {
				return nil, err
			}
			sets = append(sets, set)
		}
		return union(sets), nil
	})
}

func fieldsOf(entry metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := fieldpath.NewSet()
	if entry.FieldsV1 == nil || len(entry.FieldsV1.GetRawBytes()) == 0 {
		return set, nil
	}
	err := inOrder(entry.FieldsV1.GetRawBytes())
	if err == nil {
		err = set.FromJSON(entry.FieldsV1.GetRawReader())
	}
	if err != nil {
		return nil, fmt.Errorf("reading metadata.managedFields of manager %q: %w", entry.Manager, err)
	}
	return set, nil
}

// union returns the union of the sets. It unites halves, because one set after the other would copy the result each time, and a forged
// object may have a hundred thousand sets.
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

// beforeFirstApply is the manager to which the API server gives all fields of an object that has lost its managed fields.
const beforeFirstApply = "before-first-apply"

// IsOurs reports whether an entry of managed fields records the fields that Heirloom applied.
func IsOurs(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == Manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
}

// admission is the longest duration of a request that creates an object. An API server takes the time of the entry before its webhooks
// answer, and the time of the create afterwards.
const admission = time.Minute

// OfCreate reports whether an entry of managed fields records the create of the object, and no later write. created is the time of the
// create; it is zero while the object is being created.
func OfCreate(entry metav1.ManagedFieldsEntry, created time.Time) bool {
	if entry.Operation != metav1.ManagedFieldsOperationUpdate || entry.Subresource != "" {
		return false
	}
	return entry.Manager == beforeFirstApply || created.IsZero() ||
		entry.Time != nil && entry.Time.Sub(created) >= -admission && entry.Time.Sub(created) <= time.Second
}

// Trimmed returns the entries of managed fields that a plan needs to tell which fields are ours, which yield, and which might be adopted.
// Whether these are adopted depends on all entries. yielding are the annotations that yield.
func Trimmed(entries []metav1.ManagedFieldsEntry, created time.Time, yielding []string) []metav1.ManagedFieldsEntry {
	var kept []metav1.ManagedFieldsEntry
	inherits := slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return IsOurs(e) && names(e, []string{"labels"}) })
	for _, entry := range entries {
		if IsOurs(entry) || !inherits && OfCreate(entry, created) || names(entry, yielding) { // an object with inherited labels is no copy
			kept = append(kept, entry)
		}
	}
	if len(entries) > len(kept) { // an entry with the time of the last change stands for the others
		kept = append(kept, metav1.ManagedFieldsEntry{Time: &metav1.Time{Time: LastChanged(entries)}})
	}
	return kept
}

// LastChanged returns the time at which another manager than Heirloom last changed the metadata or the spec of an object, according to its
// managed fields; zero if they do not tell.
func LastChanged(entries []metav1.ManagedFieldsEntry) (last time.Time) {
	for _, entry := range entries {
		if entry.Subresource == "" && entry.Manager != Manager && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// names reports whether an entry may contain any of these fields.
func names(entry metav1.ManagedFieldsEntry, fields []string) bool {
	return entry.FieldsV1 != nil && slices.ContainsFunc(fields, func(name string) bool {
		return strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+name+`"`)
	})
}

// Recorded reports whether managed fields record a write of the object by Heirloom, as Apply or as Update.
func Recorded(entries []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(entries, recordsUs)
}

func recordsUs(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == Manager && entry.Subresource == ""
}

// Forget returns managed fields without our entries. Instead of an empty list, it returns a list with an empty entry: the API server takes
// an empty list for a missing list, and keeps the stored entries.
func Forget(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	kept := slices.DeleteFunc(slices.Clone(entries), recordsUs)
	if len(kept) == 0 && len(entries) > 0 {
		return []metav1.ManagedFieldsEntry{{}}
	}
	return kept
}

// surelyCheap is the size in bytes up to which managed fields in any order can be read cheaply.
const surelyCheap = 96 << 10

// inOrder returns an error if the JSON of managed fields is large and not in the order in which API servers write it. Each element out of
// order moves all later elements on its level, so a forged review could keep a CPU busy for minutes.
func inOrder(fields []byte) error {
	if len(fields) <= surelyCheap {
		return nil
	}
	var last []*fieldpath.PathElement // on each level
	for decoder := json.NewDecoder(bytes.NewReader(fields)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		name, isName := token.(string)
		switch {
		case err != nil:
			return fmt.Errorf("reading the fields: %w", err)
		case token == json.Delim('{'):
			last = append(last, nil)
		case token == json.Delim('}'):
			last = last[:len(last)-1]
		case !isName || len(last) == 0:
			return fmt.Errorf("%v among the fields", token)
		default:
			element, err := fieldpath.DeserializePathElement(name)
			if err != nil {
				continue // the reader of the set skips the element, or returns the error
			}
			before := &last[len(last)-1]
			if *before != nil && element.Compare(**before) < 0 {
				return errors.New("so many fields must be in order")
			}
			*before = &element
		}
	}
}
