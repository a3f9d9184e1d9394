// SPDX-License-Identifier: Apache-2.0

package managedfields

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// CleanUp returns the object after Heirloom has given up everything in it, for good: without our entries in metadata.managedFields, and
// without the fields that only we own, unless keepValues leaves them there without an owner. removed are the paths of the removed fields.
// CleanUp follows managed fields and not the rules, so that no field of another version of Heirloom stays, and no schema is needed.
func CleanUp(object *unstructured.Unstructured, keepValues bool) (cleaned *unstructured.Unstructured, removed []string, err error) {
	var ours, others []*fieldpath.Set
	entries := object.GetManagedFields()
	for _, entry := range entries {
		set, err := fieldsOf(entry)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case IsOurs(entry):
			ours = append(ours, set)
		case !recordsUs(entry):
			others = append(others, set)
		}
	}
	cleaned = object.DeepCopy()
	cleaned.SetManagedFields(Forget(entries))
	if !keepValues {
		r := remover{}
		r.from(cleaned.Object, union(ours).Difference(union(others)), nil)
		removed = r.removed
		slices.Sort(removed)
	}
	return cleaned, removed, nil
}

// remover removes fields from a JSON value, and then maps and lists that have become empty: Cluster API's CRDs do not accept them.
type remover struct{ removed []string }

// from returns a value without these fields, and whether it has become empty. Heirloom can own a part of a list only if keys identify its
// elements.
func (r *remover) from(v any, fields *fieldpath.Set, at fieldpath.Path) (left any, emptied bool) {
	switch v := v.(type) {
	case map[string]any:
		before := len(v)
		for name, item := range v {
			if left, stays := r.keep(item, fieldpath.PathElement{FieldName: &name}, fields, at); stays {
				v[name] = left
			} else {
				delete(v, name)
			}
		}
		return v, before > 0 && len(v) == 0
	case []any:
		kept := make([]any, 0, len(v))
		for _, item := range v {
			if left, stays := r.keep(item, elementOf(item, fields), fields, at); stays {
				kept = append(kept, left)
			}
		}
		return kept, len(v) > 0 && len(kept) == 0
	}
	return v, false
}

// keep returns the rest of a member or an element, and whether it stays. metadata and spec always stay, because every object has them.
func (r *remover) keep(item any, element fieldpath.PathElement, fields *fieldpath.Set, at fieldpath.Path) (left any, stays bool) {
	path := append(at.Copy(), element)
	if fields.Members.Has(element) {
		r.removed = append(r.removed, path.String())
		return nil, false
	}
	below, deeper := fields.Children.Get(element)
	if !deeper {
		return item, true
	}
	left, emptied := r.from(item, below, path)
	return left, !emptied || len(at) == 0
}

// elementOf returns the element of the set that identifies an item of a list, or the zero element if there is none.
func elementOf(item any, fields *fieldpath.Set) (found fieldpath.PathElement) {
	m, _ := item.(map[string]any)
	compare := func(element fieldpath.PathElement) {
		if element.Key != nil && !slices.ContainsFunc(*element.Key, func(key value.Field) bool {
			has, ok := m[key.Name]
			return !ok || !value.Equals(value.NewValueInterface(has), key.Value)
		}) {
			found = element
		}
	}
	fields.Members.Iterate(compare)
	fields.Children.Iterate(compare)
	return found
}
