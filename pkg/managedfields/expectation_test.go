// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const conversionData = "cluster.x-k8s.io/conversion-data"

// identify makes an object what an API server accepts of its kind.
func identify(object *unstructured.Unstructured) {
	object.SetName("x")
	object.SetNamespace("ns")
	set := func(value any, path ...string) { _ = unstructured.SetNestedField(object.Object, value, path...) }
	if object.GetKind() == "Machine" {
		set("c", "spec", "clusterName")
		set("secret", "spec", "bootstrap", "dataSecretName")
		return
	}
	set("c", "spec", "clusterName")
	set("x", "spec", "selector", "matchLabels", "set")
	set("c", "spec", "template", "spec", "clusterName")
	set("secret", "spec", "template", "spec", "bootstrap", "dataSecretName")
}

// contentOf is what an object has.
func contentOf(object *unstructured.Unstructured) inherit.Object {
	object, err := converted(object, "v1beta2")
	if err != nil {
		panic(err)
	}
	metadata, _ := object.Object["metadata"].(map[string]any)
	read := func(into any) {
		raw, err := json.Marshal(map[string]any{ // managed fields, which would take longest, are no content
			"apiVersion": object.Object["apiVersion"], "kind": object.Object["kind"], "spec": object.Object["spec"],
			"metadata": map[string]any{"labels": metadata["labels"], "annotations": metadata["annotations"]},
		})
		if err == nil {
			err = json.Unmarshal(raw, into)
		}
		if err != nil {
			panic(err)
		}
	}
	switch object.GetKind() {
	case "Machine":
		m := &clusterv1.Machine{}
		read(m)
		return inherit.OfMachine(m)
	case "MachineSet":
		ms := &clusterv1.MachineSet{}
		read(ms)
		return inherit.OfMachineSet(ms)
	default:
		md := &clusterv1.MachineDeployment{}
		read(md)
		return inherit.OfMachineDeployment(md)
	}
}

// put makes content what an object has.
func put(object *unstructured.Unstructured, layout inherit.Layout, has inherit.Object) {
	data, converted := object.GetAnnotations()[conversionData]
	putAt(object, layout.Top, has.Top)
	if has.Template != nil {
		putAt(object, layout.Template, *has.Template)
	}
	if converted {
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[conversionData] = data
		object.SetAnnotations(annotations)
	}
}

func putAt(object *unstructured.Unstructured, at inherit.Paths, has inherit.Content) {
	set := func(path []string, value any, empty bool) {
		if path == nil {
			return
		}
		unstructured.RemoveNestedField(object.Object, path...)
		if !empty {
			raw, _ := json.Marshal(value)
			var plain any
			_ = json.Unmarshal(raw, &plain)
			if seconds, ok := plain.(float64); ok {
				plain = int64(seconds)
			}
			_ = unstructured.SetNestedField(object.Object, plain, path...)
		}
		if above := path[:len(path)-1]; len(above) > 1 {
			if left, found, _ := unstructured.NestedMap(object.Object, above...); found && len(left) == 0 {
				unstructured.RemoveNestedField(object.Object, above...)
			}
		}
	}
	set(slices.Concat(at.Metadata, []string{"labels"}), has.Labels, len(has.Labels) == 0)
	set(slices.Concat(at.Metadata, []string{"annotations"}), has.Annotations, len(has.Annotations) == 0)
	set(at.Taints, has.Taints, len(has.Taints) == 0)
	set(at.Fields[inherit.ReadinessGates], has.Fields.ReadinessGates, len(has.Fields.ReadinessGates) == 0)
	for f, n := range has.Fields.Seconds {
		path := at.Fields[f]
		switch {
		case n == nil:
			set(path, nil, true)
		case at.Durations && len(path) > 0 && strings.HasSuffix(path[len(path)-1], "Timeout"):
			set(path, (time.Duration(*n) * time.Second).String(), false)
		default:
			set(path, *n, false)
		}
	}
}

// cell is one entry: a label, an annotation, a taint, a readiness gate or a field.
type cell struct {
	path fieldpath.Path
	// leaves are its values, by the field of a list's element; those of others have no name.
	leaves map[string]string
	// scalar says that it is a field, which is elsewhere in another version of the API; taint, that it is a taint.
	scalar, taint bool
	// byDefault says that an entry which is there wins; yields, that one which somebody else owns too is not ours.
	byDefault, yields bool
}

func (c cell) leaf(name string) fieldpath.Path {
	if name == "" {
		return c.path
	}
	return append(c.path.Copy(), fieldpath.PathElement{FieldName: &name})
}

// cellsOf lists what is in an object, by path.
func cellsOf(layout inherit.Layout, has inherit.Object) map[string]cell {
	cells := map[string]cell{}
	addCells(cells, layout.Top, has.Top)
	if has.Template != nil {
		addCells(cells, layout.Template, *has.Template)
	}
	return cells
}

func addCells(cells map[string]cell, at inherit.Paths, has inherit.Content) {
	pathTo := func(parts []string, more ...any) fieldpath.Path {
		var all []any
		for _, part := range parts {
			all = append(all, part)
		}
		return fieldpath.MakePathOrDie(append(all, more...)...)
	}
	add := func(c cell) { cells[c.path.String()] = c }
	if at.Taints != nil {
		for _, t := range has.Taints {
			leaves := map[string]string{"key": t.Key, "effect": string(t.Effect), "propagation": string(t.Propagation)}
			if t.Value != "" {
				leaves["value"] = t.Value
			}
			add(cell{path: pathTo(at.Taints, fieldpath.KeyByFields("effect", string(t.Effect), "key", t.Key)), leaves: leaves, taint: true, byDefault: has.Claims[taint.MachineID(t).String()] == inherit.Default})
		}
	}
	for key, value := range has.Annotations {
		if yields := has.Claims[key] == inherit.Yielding; key != conversionData {
			add(cell{path: pathTo(at.Metadata, "annotations", key), leaves: map[string]string{"": value}, byDefault: yields, yields: yields})
		}
	}
	for key, value := range has.Labels {
		add(cell{path: pathTo(at.Metadata, "labels", key), leaves: map[string]string{"": value}})
	}
	for _, gate := range has.Fields.ReadinessGates {
		leaves := map[string]string{"conditionType": gate.ConditionType}
		if gate.Polarity != "" {
			leaves["polarity"] = string(gate.Polarity)
		}
		add(cell{path: pathTo(at.Fields[inherit.ReadinessGates], fieldpath.KeyByFields("conditionType", gate.ConditionType)), leaves: leaves})
	}
	for f, n := range has.Fields.Seconds {
		if path := at.Fields[f]; path != nil && n != nil {
			add(cell{path: pathTo(path), leaves: map[string]string{"": fmt.Sprint(*n)}, scalar: true})
		}
	}
}

// owners is who owns what of an object.
type owners map[string]*fieldpath.Set

const us = managedfields.Manager + "/Apply"

// ownersIn also returns what belongs to the create of the object and what others own since, and whether all of it is in this object's
// version of the API.
func ownersIn(object *unstructured.Unstructured) (by owners, create, later *fieldpath.Set, same bool) {
	by, create, later, same = owners{us: fieldpath.NewSet()}, fieldpath.NewSet(), fieldpath.NewSet(), true
	for _, entry := range object.GetManagedFields() {
		set := fieldpath.NewSet()
		if entry.FieldsV1 != nil {
			if err := set.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
				panic(err)
			}
		}
		key := entry.Manager + "/" + string(entry.Operation)
		if by[key] == nil {
			by[key] = fieldpath.NewSet()
		}
		by[key] = by[key].Union(set)
		same = same && entry.APIVersion == object.GetAPIVersion()
		if managedfields.OfCreate(entry, object.GetCreationTimestamp().Time) {
			create = create.Union(set)
		} else if key != us {
			later = later.Union(set)
		}
	}
	return by, create, later, same
}

// others reports whether anybody else owns a field too.
func (o owners) others(path fieldpath.Path) bool {
	for manager, set := range o {
		if manager != us && set.Has(path) {
			return true
		}
	}
	return false
}

func fieldsText(object *unstructured.Unstructured) string {
	var text strings.Builder
	for _, entry := range object.GetManagedFields() {
		fmt.Fprintf(&text, "  %s %s %s %s\n", entry.Manager, entry.Operation, entry.APIVersion, entry.FieldsV1.GetRawString())
	}
	return text.String()
}
