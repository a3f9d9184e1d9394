// SPDX-License-Identifier: Apache-2.0

package managedfields

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Release returns the object once Heirloom has given up everything in it, for good: our entries in metadata.managedFields
// are gone, and so are the fields that only we own, unless keepValues leaves them there without an owner.
// removed are the paths of those fields. The object must be in the version of the API that AppliedIn returned.
//
// It goes by what is recorded and not by the rules, so that nothing stays of another version of Heirloom, and no schema is
// needed.
func Release(object *unstructured.Unstructured, keepValues bool) (released *unstructured.Unstructured, removed []string, err error) {
	ours, others := fieldpath.NewSet(), fieldpath.NewSet()
	entries := object.GetManagedFields()
	for _, entry := range entries {
		set, err := fieldsOf(entry)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case IsOurs(entry):
			ours = ours.Union(set)
		case !recordsUs(entry):
			others = others.Union(set)
		}
	}
	released = object.DeepCopy()
	released.SetManagedFields(Forget(entries))
	if !keepValues {
		r := remover{}
		r.fromMap(released.Object, ours.Difference(others), nil)
		removed = r.removed
		slices.Sort(removed)
	}
	return released, removed, nil
}

// remover takes fields out of a JSON value, and with them the maps and lists that this empties: Cluster API's CRDs do not
// accept those.
type remover struct {
	removed []string
}

func (r *remover) fromMap(m map[string]any, fields *fieldpath.Set, at fieldpath.Path) {
	for name, field := range m {
		element := fieldpath.PathElement{FieldName: &name}
		below, deeper := fields.Children.Get(element)
		switch {
		case fields.Members.Has(element):
			r.removed = append(r.removed, append(at.Copy(), element).String())
			delete(m, name)
		case deeper:
			left, emptied := r.from(field, below, append(at.Copy(), element))
			m[name] = left
			// metadata and spec are in every object.
			if emptied && len(at) > 0 {
				delete(m, name)
			}
		}
	}
}

// from returns a value without these fields, and whether nothing is left of it.
func (r *remover) from(v any, fields *fieldpath.Set, at fieldpath.Path) (left any, emptied bool) {
	switch v := v.(type) {
	case map[string]any:
		before := len(v)
		r.fromMap(v, fields, at)
		return v, before > 0 && len(v) == 0
	case []any:
		list := r.fromList(v, fields, at)
		return list, len(v) > 0 && len(list) == 0
	default:
		return v, false
	}
}

// fromList takes elements out of a list that is told apart by keys, which is the only kind of list that is ours in part.
func (r *remover) fromList(list []any, fields *fieldpath.Set, at fieldpath.Path) []any {
	kept := make([]any, 0, len(list))
	for _, item := range list {
		element, owned := elementOf(item, fields)
		if owned && fields.Members.Has(element) {
			r.removed = append(r.removed, append(at.Copy(), element).String())
			continue
		}
		if below, deeper := fields.Children.Get(element); owned && deeper {
			item, _ = r.from(item, below, append(at.Copy(), element))
		}
		kept = append(kept, item)
	}
	return kept
}

// elementOf returns by which of the elements in a set an item of a list is meant.
func elementOf(item any, fields *fieldpath.Set) (fieldpath.PathElement, bool) {
	m, ok := item.(map[string]any)
	if !ok {
		return fieldpath.PathElement{}, false
	}
	means := func(element fieldpath.PathElement) bool {
		return element.Key != nil && !slices.ContainsFunc(*element.Key, func(key value.Field) bool {
			has, ok := m[key.Name]
			return !ok || !value.Equals(value.NewValueInterface(has), key.Value)
		})
	}
	for _, all := range []iter.Seq[fieldpath.PathElement]{fields.Members.All(), fields.Children.All()} {
		for element := range all {
			if means(element) {
				return element, true
			}
		}
	}
	return fieldpath.PathElement{}, false
}
