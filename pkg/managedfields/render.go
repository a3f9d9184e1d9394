// SPDX-License-Identifier: Apache-2.0

package managedfields

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// ApplyConfiguration returns all fields that we own after the write, for a forced server-side apply. It has the object's UID, so that the
// apply does not create a deleted object again, and its resourceVersion: an apply also names entries that the object already has, and must
// not restore entries that Cluster API has just removed.
func (p *Plan) ApplyConfiguration(apiVersion, kind string, object metav1.Object) (*unstructured.Unstructured, error) {
	config := &unstructured.Unstructured{Object: map[string]any{}}
	for _, at := range p.places {
		if owned := at.value(func(e entry) item { return e.owned }); owned != nil {
			if err := unstructured.SetNestedField(config.Object, owned, at.path...); err != nil {
				return nil, fmt.Errorf("building the apply configuration: %w", err)
			}
		}
	}
	config.SetAPIVersion(apiVersion)
	config.SetKind(kind)
	config.SetName(object.GetName())
	config.SetNamespace(object.GetNamespace())
	config.SetUID(object.GetUID())
	config.SetResourceVersion(object.GetResourceVersion())
	return config, nil
}

// Patch returns the operations that change an admission request's object as planned: an operation for each changed map, list or field, and
// for missing or empty parents, and the operation on metadata.managedFields. raw is the object in the request. now becomes the time of our
// entry, and apiVersion the version of a new entry.
func (p *Plan) Patch(raw []byte, apiVersion string, now time.Time) ([]jsonpatch.Operation, error) {
	content, err := p.contentPatch(raw)
	if err != nil {
		return nil, err
	}
	managed, err := p.managedFieldsPatch(apiVersion, now)
	return append(content, managed...), err
}

// contentPatch also changes the object, to learn which parents of a place are missing or become empty. Every object has metadata and spec,
// so most patches need not parse the object.
func (p *Plan) contentPatch(raw []byte) (operations []jsonpatch.Operation, err error) {
	var object map[string]any
	var emptied [][]string
	for _, at := range p.places {
		if !slices.ContainsFunc(at.entries, entry.changes) {
			continue
		}
		deep := len(at.path) > 2
		if deep && object == nil {
			if err := json.Unmarshal(raw, &object); err != nil || object == nil {
				return nil, fmt.Errorf("reading the object: %w", cmp.Or(err, errors.New("it is null")))
			}
		}
		after := at.value(func(e entry) item { return e.after })
		if after == nil {
			unstructured.RemoveNestedField(object, at.path...)
			emptied = append(emptied, at.path)
			continue
		}
		for i := 1; deep && i < len(at.path); i++ {
			if there, _, err := unstructured.NestedFieldNoCopy(object, at.path[:i]...); err != nil {
				return nil, fmt.Errorf("reading the object: %w", err)
			} else if there == nil {
				operations = append(operations, jsonpatch.NewOperation("add", pointer(at.path[:i]), map[string]any{}))
				_ = unstructured.SetNestedMap(object, map[string]any{}, at.path[:i]...) // all parents exist
			}
		}
		operations = append(operations, jsonpatch.NewOperation("add", pointer(at.path), after))
		if deep {
			_ = unstructured.SetNestedField(object, true, at.path...)
		}
	}
	for _, path := range emptied {
		if gone := whatGoes(object, path); gone != nil {
			operations = append(operations, jsonpatch.NewOperation("remove", pointer(gone), nil))
		}
	}
	return operations, nil
}

// whatGoes returns the path to remove from an object once nothing is left at path. Cluster API's CRDs do not accept an empty object if all
// its fields are optional: a deletion, or the metadata of a template. The result is nil if this parent has been removed before.
func whatGoes(object map[string]any, path []string) []string {
	above := path[:len(path)-1]
	if len(above) < 2 || !slices.Contains([]string{"deletion", "metadata"}, above[len(above)-1]) {
		return path
	}
	left, _, _ := unstructured.NestedFieldNoCopy(object, above...)
	switch siblings, there := left.(map[string]any); {
	case !there:
		return nil
	case len(siblings) > 0:
		return path
	}
	unstructured.RemoveNestedField(object, above...)
	return above
}

// managedFieldsPatch returns the operation on metadata.managedFields. It inserts our entry if the entry is new and no other entry changes;
// otherwise it replaces the list. The list stays in the API server's order, because otherwise the next write would sort it, and an
// identical apply would store a new version.
func (p *Plan) managedFieldsPatch(apiVersion string, now time.Time) ([]jsonpatch.Operation, error) {
	const list = "/metadata/managedFields"
	taken := !p.overruled.Empty() || !p.adopted.Empty()
	if p.owned.Equals(p.managed.ours) && !taken {
		return nil, nil
	}
	entries, err := p.otherEntries(taken)
	if err != nil {
		return nil, err
	}
	if p.owned.Empty() {
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", list, entries)}, nil
	}
	if p.managed.otherVersion {
		apiVersion = p.managed.entries[p.managed.index].APIVersion
	}
	ours, err := withFields(metav1.ManagedFieldsEntry{
		Manager: Manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion,
		Time: &metav1.Time{Time: now}, FieldsType: "FieldsV1",
	}, p.owned)
	if err != nil {
		return nil, err
	}
	at, _ := slices.BinarySearchFunc(entries, ours, compareEntries)
	if p.managed.index < 0 && !taken && len(entries) > 0 {
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", list+"/"+strconv.Itoa(at), ours)}, nil
	}
	return []jsonpatch.Operation{jsonpatch.NewOperation("add", list, slices.Insert(entries, at, ours))}, nil
}

// otherEntries returns the entries of other managers, without the fields that the plan takes from them.
func (p *Plan) otherEntries(taken bool) ([]metav1.ManagedFieldsEntry, error) {
	entries := make([]metav1.ManagedFieldsEntry, 0, len(p.managed.entries)+1)
	for i, entry := range p.managed.entries {
		if i == p.managed.index {
			continue
		}
		if taken {
			set, err := fieldsOf(entry)
			if err != nil {
				return nil, err
			}
			left := set.Difference(p.overruled)
			if OfCreate(entry, p.managed.age) {
				left = left.Difference(p.adopted)
			}
			if left.Empty() {
				continue
			}
			if !left.Equals(set) {
				if entry, err = withFields(entry, left); err != nil {
					return nil, err
				}
			}
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// compareEntries compares entries in the order in which the API server keeps managed fields: by operation, second and manager.
func compareEntries(a, b metav1.ManagedFieldsEntry) int {
	return cmp.Or(
		cmp.Compare(a.Operation, b.Operation),
		cmp.Compare(ptr.Deref(a.Time, metav1.Time{}).Unix(), ptr.Deref(b.Time, metav1.Time{}).Unix()),
		cmp.Compare(a.Manager, b.Manager),
		cmp.Compare(a.APIVersion, b.APIVersion),
		cmp.Compare(a.Subresource, b.Subresource),
	)
}

func withFields(entry metav1.ManagedFieldsEntry, set *fieldpath.Set) (metav1.ManagedFieldsEntry, error) {
	raw, err := set.ToJSON()
	if err != nil {
		return entry, fmt.Errorf("writing the managed fields of %q: %w", entry.Manager, err)
	}
	entry.FieldsV1 = metav1.NewFieldsV1(string(raw))
	return entry, nil
}

// pointer returns a path as a JSON pointer. Field names of Kubernetes objects need no escaping, and the path has no keys of maps.
func pointer(path []string) string {
	return "/" + strings.Join(path, "/")
}
