// SPDX-License-Identifier: Apache-2.0

package managedfields

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// ApplyConfiguration returns everything that we own after the write, for a server-side apply that is forced. It has the
// object's UID, so that an object which is gone meanwhile is not created again, and its version: an apply also names what
// the object has already, and must not restore what Cluster API has just removed from it.
func (p *Plan) ApplyConfiguration(apiVersion, kind string, object metav1.Object) (*unstructured.Unstructured, error) {
	config := &unstructured.Unstructured{Object: map[string]any{}}
	for _, at := range p.applied {
		if err := unstructured.SetNestedField(config.Object, at.render(at.ours), at.path...); err != nil {
			return nil, fmt.Errorf("building the apply configuration: %w", err)
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

// Patch returns the operations that make an admission request's object carry the plan: one for each map or list that
// changes, and those for metadata.managedFields. raw is the object as the request has it; now goes into our entry, and
// so does apiVersion, if the entry is new.
func (p *Plan) Patch(raw []byte, apiVersion string, now time.Time) ([]jsonpatch.Operation, error) {
	if !p.Needed() {
		return nil, nil
	}
	operations := make([]jsonpatch.Operation, 0, len(p.changing)+1)
	done := map[string]bool{}
	for _, at := range p.changing {
		missing, err := missingParents(raw, at.path, done)
		if err != nil {
			return nil, err
		}
		operations = append(operations, missing...)
		if len(at.after) > 0 {
			operations = append(operations, jsonpatch.NewOperation("add", pointer(at.path), at.render(at.after)))
			continue
		}
		gone := at.path
		if above := gone[:len(gone)-1]; p.empties(raw, above) {
			gone = above
		}
		if !done[pointer(gone)] {
			done[pointer(gone)] = true
			operations = append(operations, jsonpatch.NewOperation("remove", pointer(gone), nil))
		}
	}
	fields, err := p.managedFieldsPatch(apiVersion, now)
	if err != nil {
		return nil, err
	}
	return append(operations, fields...), nil
}

// empties reports whether the plan takes every field out of the object at path. Cluster API's CRDs do not accept the empty
// object that would stay behind where all fields are optional: a deletion, or the metadata of a template.
func (p *Plan) empties(raw []byte, path []string) bool {
	if len(path) < 2 || !slices.Contains([]string{"deletion", "metadata"}, path[len(path)-1]) {
		return false
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return false
	}
	fields, _, err := unstructured.NestedMap(object, path...)
	if err != nil {
		return false
	}
	for _, at := range p.changing {
		if last := len(at.path) - 1; slices.Equal(at.path[:last], path) {
			if len(at.after) > 0 {
				return false
			}
			delete(fields, at.path[last])
		}
	}
	return len(fields) == 0
}

// missingParents returns operations that create the objects above path which raw does not have. The outermost, metadata
// and spec, are there in every object of the kinds that inherit.
func missingParents(raw []byte, path []string, created map[string]bool) ([]jsonpatch.Operation, error) {
	if len(path) <= 2 {
		return nil, nil
	}
	var operations []jsonpatch.Operation
	level := json.RawMessage(raw)
	for i, name := range path[:len(path)-1] {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(level, &fields); err != nil {
			return nil, fmt.Errorf("reading %s: %w", strings.Join(path[:i], "."), err)
		}
		level = fields[name]
		if len(level) > 0 && string(level) != "null" {
			continue
		}
		level = json.RawMessage("{}")
		if at := pointer(path[:i+1]); !created[at] {
			created[at] = true
			operations = append(operations, jsonpatch.NewOperation("add", at, map[string]any{}))
		}
	}
	return operations, nil
}

// managedFieldsPatch returns the operation on metadata.managedFields: our entry put in its place where that is all, the
// whole list where other entries change too. The list stays in the API server's order, because otherwise the next write
// would sort it, and an identical apply would store a new version.
func (p *Plan) managedFieldsPatch(apiVersion string, now time.Time) ([]jsonpatch.Operation, error) {
	const list = "/metadata/managedFields"
	taken := !p.overruled.Empty() || !p.adopted.Empty()
	if p.owned.Equals(p.managed.ours) && !taken {
		return nil, nil
	}
	entries, err := p.otherEntries()
	if err != nil {
		return nil, err
	}
	if p.owned.Empty() {
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", list, entries)}, nil
	}
	if p.managed.otherVersion {
		apiVersion = p.managed.entries[p.managed.index].APIVersion
	}
	entry, err := p.ourEntry(apiVersion, now)
	if err != nil {
		return nil, err
	}
	at, _ := slices.BinarySearchFunc(entries, entry, compareEntries)
	if p.managed.index < 0 && !taken && len(entries) > 0 {
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", list+"/"+strconv.Itoa(at), entry)}, nil
	}
	return []jsonpatch.Operation{jsonpatch.NewOperation("add", list, slices.Insert(entries, at, entry))}, nil
}

// ourEntry returns the entry for what is owned.
func (p *Plan) ourEntry(apiVersion string, now time.Time) (metav1.ManagedFieldsEntry, error) {
	entry := metav1.ManagedFieldsEntry{
		Manager: Manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion,
		Time: &metav1.Time{Time: now}, FieldsType: "FieldsV1",
	}
	return withFields(entry, p.owned)
}

// otherEntries returns the entries of other managers, without what the plan takes from them.
func (p *Plan) otherEntries() ([]metav1.ManagedFieldsEntry, error) {
	entries := make([]metav1.ManagedFieldsEntry, 0, len(p.managed.entries)+1)
	for i, entry := range p.managed.entries {
		if i == p.managed.index {
			continue
		}
		if !p.overruled.Empty() || !p.adopted.Empty() {
			set, err := fieldsOf(entry)
			if err != nil {
				return nil, err
			}
			after := p.withoutAdopted(entry, set.Difference(p.overruled))
			if after.Empty() {
				continue
			}
			if !after.Equals(set) {
				if entry, err = withFields(entry, after); err != nil {
					return nil, err
				}
			}
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// compareEntries is the order in which the API server keeps managed fields: by operation, second and manager.
func compareEntries(a, b metav1.ManagedFieldsEntry) int {
	return cmp.Or(
		cmp.Compare(a.Operation, b.Operation),
		cmp.Compare(seconds(a.Time), seconds(b.Time)),
		cmp.Compare(a.Manager, b.Manager),
		cmp.Compare(a.APIVersion, b.APIVersion),
		cmp.Compare(a.Subresource, b.Subresource),
	)
}

func seconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

func withFields(entry metav1.ManagedFieldsEntry, set *fieldpath.Set) (metav1.ManagedFieldsEntry, error) {
	raw, err := set.ToJSON()
	if err != nil {
		return entry, fmt.Errorf("writing the managed fields of %q: %w", entry.Manager, err)
	}
	entry.FieldsV1 = metav1.NewFieldsV1(string(raw))
	return entry, nil
}

// pointer returns a path as JSON pointer. Field names of Kubernetes objects need no escaping; keys never stand in it.
func pointer(path []string) string {
	return "/" + strings.Join(path, "/")
}
