// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"maps"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// place is one map or list of a child that inherits, with what is there and what should be.
type place struct {
	// path leads to the map or list, as field names.
	path []string
	// current is what the child has, in its order; desired is what it should inherit, sorted.
	current, desired []entry
	// render turns entries into the JSON value of the map or list.
	render func([]entry) any
}

// entry is one member of a place: a label, an annotation, a taint.
type entry struct {
	// name is how people call it, unique within its place.
	name    string
	element fieldpath.PathElement
	value   any
	// leaves are the fields below the element that are owned with it. A scalar has none.
	leaves []string
}

// places lists every place of a child in which the rules may bring something.
func places(current, desired inherit.Object) []place {
	all := placesOf(nil, current.Top, desired.Top)
	if desired.Template != nil && current.Template != nil {
		all = append(all, placesOf([]string{"spec", "template"}, *current.Template, *desired.Template)...)
	}
	return all
}

func placesOf(at []string, current, desired inherit.Content) []place {
	below := func(names ...string) []string { return slices.Concat(at, names) }
	return []place{
		mapPlace(below("metadata", "labels"), current.Labels, desired.Labels),
		mapPlace(below("metadata", "annotations"), current.Annotations, desired.Annotations),
		taintPlace(below("spec", "taints"), current.Taints, desired.Taints),
	}
}

func mapPlace(path []string, current, desired map[string]string) place {
	return place{path: path, current: mapEntries(current), desired: mapEntries(desired), render: renderMap}
}

func mapEntries(m map[string]string) []entry {
	entries := make([]entry, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		entries = append(entries, entry{name: key, element: fieldpath.PathElement{FieldName: &key}, value: m[key]})
	}
	return entries
}

func renderMap(entries []entry) any {
	m := make(map[string]any, len(entries))
	for _, e := range entries {
		m[e.name] = e.value
	}
	return m
}

// taintPlace is a list map: Cluster API's CRDs declare key and effect as its keys.
func taintPlace(path []string, current, desired []clusterv1.MachineTaint) place {
	return place{path: path, current: taintEntries(current), desired: taintEntries(taint.Merge(desired, nil)), render: renderTaints}
}

func taintEntries(taints []clusterv1.MachineTaint) []entry {
	entries := make([]entry, 0, len(taints))
	for _, t := range taints {
		leaves := []string{"effect", "key", "propagation"}
		if t.Value != "" {
			leaves = append(leaves, "value")
		}
		entries = append(entries, entry{
			name: taint.MachineID(t).String(),
			element: fieldpath.PathElement{Key: &value.FieldList{
				{Name: "effect", Value: value.NewValueInterface(string(t.Effect))},
				{Name: "key", Value: value.NewValueInterface(t.Key)},
			}},
			value:  t,
			leaves: leaves,
		})
	}
	return entries
}

func renderTaints(entries []entry) any {
	taints := make([]any, 0, len(entries))
	for _, e := range entries {
		t, ok := e.value.(clusterv1.MachineTaint)
		if !ok {
			continue
		}
		rendered := map[string]any{"key": t.Key, "effect": string(t.Effect), "propagation": string(t.Propagation)}
		if t.Value != "" {
			rendered["value"] = t.Value
		}
		taints = append(taints, rendered)
	}
	return taints
}

// pathTo returns the field path of an entry.
func (p place) pathTo(e entry) fieldpath.Path {
	path := make(fieldpath.Path, 0, len(p.path)+1)
	for _, name := range p.path {
		path = append(path, fieldpath.PathElement{FieldName: &name})
	}
	return append(path, e.element)
}

// leafPaths returns the paths of the fields below an entry that stand for its value.
func (p place) leafPaths(e entry) []fieldpath.Path {
	paths := make([]fieldpath.Path, 0, len(e.leaves))
	for _, leaf := range e.leaves {
		paths = append(paths, append(p.pathTo(e), fieldpath.PathElement{FieldName: &leaf}))
	}
	return paths
}
