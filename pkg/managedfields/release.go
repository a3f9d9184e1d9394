// SPDX-License-Identifier: Apache-2.0

package managedfields

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Release returns the object once Heirloom has given up everything in it, for good: our entries in metadata.managedFields
// are gone, and so are the fields that only we own, unless keepValues leaves them there without an owner.
// removed are the paths of those fields. It goes by what is recorded and not by the rules, so that nothing stays of another version of
// Heirloom, and no schema is needed.
func Release(object *unstructured.Unstructured, keepValues bool) (released *unstructured.Unstructured, removed []string, err error) {
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
	released = object.DeepCopy()
	released.SetManagedFields(Forget(entries))
	if !keepValues {
		r := remover{}
		r.from(released.Object, union(ours).Difference(union(others)), nil)
		removed = r.removed
		slices.Sort(removed)
	}
	return released, removed, nil
}

// remover takes fields out of a JSON value, and with them the maps and lists that this empties: Cluster API's CRDs do not
// accept those.
type remover struct{ removed []string }

// from returns a value without these fields, and whether that has emptied it. Of lists, those are ours in part whose elements keys tell
// apart.
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

// keep returns what is left of a member or an element, and whether it stays. metadata and spec are in every object.
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

// elementOf returns by which of the elements in a set an item of a list is meant, if by any.
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
