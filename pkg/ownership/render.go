// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// ApplyConfiguration returns everything that we own after the write, for a server-side apply that is forced. It has the
// object's UID, so that an object which is gone meanwhile is not created again.
func (p *Plan) ApplyConfiguration(apiVersion, kind string, object metav1.Object) (*unstructured.Unstructured, error) {
	config := &unstructured.Unstructured{Object: map[string]any{}}
	for _, owned := range p.ownedEntries {
		if err := unstructured.SetNestedField(config.Object, owned.place.render(owned.entries), owned.place.path...); err != nil {
			return nil, fmt.Errorf("building the apply configuration: %w", err)
		}
	}
	config.SetAPIVersion(apiVersion)
	config.SetKind(kind)
	config.SetName(object.GetName())
	config.SetNamespace(object.GetNamespace())
	config.SetUID(object.GetUID())
	return config, nil
}

// Patch returns the operations that make an admission request's object carry the plan: one for each map or list that
// changes, and those for metadata.managedFields. raw is the object as the request has it; apiVersion and now go into
// our entry.
func (p *Plan) Patch(raw []byte, apiVersion string, now time.Time) ([]jsonpatch.Operation, error) {
	if !p.Needed() {
		return nil, nil
	}
	operations := make([]jsonpatch.Operation, 0, len(p.results)+1)
	created := map[string]bool{}
	for _, r := range p.results {
		missing, err := missingParents(raw, r.place.path, created)
		if err != nil {
			return nil, err
		}
		operations = append(operations, missing...)
		operations = append(operations, r.operation())
	}
	fields, err := p.managedFieldsPatch(apiVersion, now)
	if err != nil {
		return nil, err
	}
	return append(operations, fields...), nil
}

func (r result) operation() jsonpatch.Operation {
	if len(r.entries) == 0 {
		return jsonpatch.NewOperation("remove", pointer(r.place.path), nil)
	}
	return jsonpatch.NewOperation("add", pointer(r.place.path), r.place.render(r.entries))
}

// missingParents returns operations that create the objects above path which raw does not have.
func missingParents(raw []byte, path []string, created map[string]bool) ([]jsonpatch.Operation, error) {
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

// managedFieldsPatch returns the operations on metadata.managedFields. Positions are those before the patch: entries
// that go are removed last, from the end.
func (p *Plan) managedFieldsPatch(apiVersion string, now time.Time) ([]jsonpatch.Operation, error) {
	const list = "/metadata/managedFields"
	var operations, removals []jsonpatch.Operation
	for i, entry := range p.managed.entries {
		if i != p.managed.index && p.overruled.Empty() {
			continue
		}
		set, err := fieldsOf(entry)
		if err != nil {
			return nil, err
		}
		after := set.Difference(p.overruled)
		if i == p.managed.index {
			after = p.owned
			entry.APIVersion, entry.Time = apiVersion, &metav1.Time{Time: now}
		}
		at := list + "/" + strconv.Itoa(i)
		switch {
		case after.Equals(set):
		case after.Empty():
			removals = append([]jsonpatch.Operation{jsonpatch.NewOperation("remove", at, nil)}, removals...)
		default:
			updated, err := withFields(entry, after)
			if err != nil {
				return nil, err
			}
			operations = append(operations, jsonpatch.NewOperation("replace", at, updated))
		}
	}
	if p.managed.index < 0 && !p.owned.Empty() {
		entry, err := withFields(metav1.ManagedFieldsEntry{
			Manager: Manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion,
			Time: &metav1.Time{Time: now}, FieldsType: "FieldsV1",
		}, p.owned)
		if err != nil {
			return nil, err
		}
		if len(p.managed.entries) == 0 {
			return append(operations, jsonpatch.NewOperation("add", list, []metav1.ManagedFieldsEntry{entry})), nil
		}
		operations = append(operations, jsonpatch.NewOperation("add", list+"/-", entry))
	}
	return append(operations, removals...), nil
}

func withFields(entry metav1.ManagedFieldsEntry, set *fieldpath.Set) (metav1.ManagedFieldsEntry, error) {
	raw, err := set.ToJSON()
	if err != nil {
		return entry, fmt.Errorf("writing the managed fields of %q: %w", entry.Manager, err)
	}
	entry.FieldsV1 = &metav1.FieldsV1{Raw: raw}
	return entry, nil
}

// pointer returns a path as JSON pointer. Field names of Kubernetes objects need no escaping; keys never stand in it.
func pointer(path []string) string {
	return "/" + strings.Join(path, "/")
}
