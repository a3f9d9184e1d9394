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

// managedFields is metadata.managedFields. Only our own entry is read at once: most admissions need no other.
type managedFields struct {
	entries []metav1.ManagedFieldsEntry
	// ours is what our own entry lists, at position index; index is -1 where we have none.
	ours  *fieldpath.Set
	index int
	// otherVersion says that our entry is in another version of a control plane's API, which may have other paths.
	otherVersion bool
	// age is when the object was created; zero while it is being created.
	age time.Time
	// created returns what other managers own since the create of the object, and later what they own since.
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

// others returns a function that reads the entries of other managers once: those of the create, or the rest.
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

// union returns the union of these sets. One after the other would copy the first for each of the others, and a forged object may have a
// hundred thousand.
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

// beforeFirstApply is the manager to which the API server gives everything of an object that has lost its managed fields.
const beforeFirstApply = "before-first-apply"

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
// adopted. Whether it is, only all of them can tell. yielding are the annotations that yield.
func Trimmed(entries []metav1.ManagedFieldsEntry, created time.Time, yielding []string) []metav1.ManagedFieldsEntry {
	var kept []metav1.ManagedFieldsEntry
	inherits := slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return IsOurs(e) && names(e, []string{"labels"}) })
	for _, entry := range entries {
		if IsOurs(entry) || !inherits && OfCreate(entry, created) || names(entry, yielding) { // an object with labels of an owner is no copy
			kept = append(kept, entry)
		}
	}
	if len(entries) > len(kept) { // one more stands for the others: that there are some, and when the last of them changed
		kept = append(kept, metav1.ManagedFieldsEntry{Time: &metav1.Time{Time: LastChanged(entries)}})
	}
	return kept
}

// LastChanged returns when somebody else than Heirloom last changed the metadata or the spec of an object, as far as its managed
// fields tell; zero if they do not.
func LastChanged(entries []metav1.ManagedFieldsEntry) (last time.Time) {
	for _, entry := range entries {
		if entry.Subresource == "" && entry.Manager != Manager && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
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

// Recorded reports whether managed fields say that Heirloom has written the object: as what it applied, or as an update.
func Recorded(entries []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(entries, recordsUs)
}

func recordsUs(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == Manager && entry.Subresource == ""
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

// surelyCheap is how many bytes of managed fields can be read in whatever order they are.
const surelyCheap = 96 << 10

// inOrder returns an error if the JSON of managed fields is large and not in the order in which API servers write it. Each element
// that is not in order moves all those after it on its level, so a forged review could keep a CPU busy for minutes.
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
				continue // it is passed over when the set is read, or the error is told then
			}
			before := &last[len(last)-1]
			if *before != nil && element.Compare(**before) < 0 {
				return errors.New("so many fields must be in order")
			}
			*before = &element
		}
	}
}
