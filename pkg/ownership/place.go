// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// place is one map or list of a child that inherits, with what is there and what should be.
type place struct {
	// path leads to the map or list, as field names.
	path []string
	// current is what the child has, in its order; desired is what it should inherit, sorted.
	current, desired []entry
	// render turns entries into the JSON value of the map, list or field.
	render func([]entry) any
	// scalar says that path leads to a single field, which is the place's only entry.
	scalar bool
	// taints says that the entries are a Machine's own taints, which need not come from an owner.
	taints bool
	// versioned says that the path differs between the versions of the API.
	versioned bool
}

// entry is one member of a place: a label, an annotation, a taint.
type entry struct {
	// name is how people call it, unique within its place.
	name    string
	element fieldpath.PathElement
	value   any
	// weak says that a child's own entry of the same name wins.
	weak bool
	// yields says that the entry is not ours either while somebody else owns it too.
	yields bool
	// leaves are the fields of a list's element, which are owned with it. Members of maps have none.
	leaves map[string]any
}

// equal reports whether two entries are stored as the same.
func (e entry) equal(other entry) bool {
	if e.leaves != nil || other.leaves != nil {
		return e.name == other.name && maps.Equal(e.leaves, other.leaves)
	}
	return e.name == other.name && e.value == other.value
}

// places lists every place of a child in which the rules may bring something.
func places(current, desired inherit.Object) []place {
	all := placesOf(current.Layout.Top, current.Top, desired.Top)
	if current.Template == nil {
		return all
	}
	template := placesOf(current.Layout.Template, *current.Template, ptr.Deref(desired.Template, inherit.Content{}))
	for i := range template {
		template[i].taints = false
	}
	return append(all, template...)
}

// placesOf leaves out what the object's layout does not have.
func placesOf(at capi.Paths, current, desired inherit.Content) []place {
	all := []place{
		mapPlace(at.Metadata, "labels", current.Labels, desired.Labels),
		annotationPlace(at, current, desired),
		taintPlace(at, current.Taints, desired.Taints, desired.AnnotatedTaints),
	}
	all = append(all, fieldPlaces(at, current.Fields, desired.Fields)...)
	return slices.DeleteFunc(all, func(p place) bool { return p.path == nil })
}

func mapPlace(metadata []string, name string, current, desired map[string]string) place {
	if metadata == nil {
		return place{}
	}
	return place{path: append(slices.Clone(metadata), name), current: mapEntries(current), desired: mapEntries(desired), render: renderMap}
}

// annotationPlace has those annotations that yield among the others; what an owner declares by the same name wins.
func annotationPlace(at capi.Paths, current, desired inherit.Content) place {
	all := maps.Clone(desired.Yielding)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, desired.Annotations)
	annotations := mapPlace(at.Metadata, "annotations", current.Annotations, all)
	for i, e := range annotations.desired {
		_, declared := desired.Annotations[e.name]
		annotations.desired[i].weak, annotations.desired[i].yields = !declared, !declared
	}
	return annotations
}

// ofNoOwner reports whether an entry of ours comes from what its object declares itself, and not from an owner.
func (e entry) ofNoOwner() bool {
	return slices.Contains(inherit.CapacityAnnotations(), e.name)
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

// taintPlace is a list map: Cluster API's CRDs declare key and effect as its keys. Typed taints win over annotated ones.
func taintPlace(at capi.Paths, current, typed, annotated []clusterv1.MachineTaint) place {
	desired := taintEntries(taint.Merge(typed, annotated))
	strong := sets.New[string]()
	for _, t := range typed {
		strong.Insert(taint.MachineID(t).String())
	}
	for i := range desired {
		desired[i].weak = !strong.Has(desired[i].name)
	}
	return place{
		path: at.Taints, versioned: at.ListsMove, current: taintEntries(current), desired: desired, render: renderList, taints: true,
	}
}

func taintEntries(taints []clusterv1.MachineTaint) []entry {
	entries := make([]entry, 0, len(taints))
	for _, t := range taints {
		leaves := map[string]any{"effect": string(t.Effect), "key": t.Key, "propagation": string(t.Propagation)}
		if t.Value != "" {
			leaves["value"] = t.Value
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

func renderList(entries []entry) any {
	list := make([]any, 0, len(entries))
	for _, e := range entries {
		list = append(list, e.leaves)
	}
	return list
}

// among returns those of the current entries that a set of fields has.
func (p place) among(set *fieldpath.Set) []entry {
	return slices.DeleteFunc(slices.Clone(p.current), func(e entry) bool { return !set.Has(p.pathTo(e)) })
}

// fieldPath returns the path of the place itself.
func (p place) fieldPath() fieldpath.Path {
	path := make(fieldpath.Path, 0, len(p.path)+1)
	for _, name := range p.path {
		path = append(path, fieldpath.PathElement{FieldName: &name})
	}
	return path
}

// pathTo returns the field path of an entry.
func (p place) pathTo(e entry) fieldpath.Path {
	if p.scalar {
		return p.fieldPath()
	}
	return append(p.fieldPath(), e.element)
}

// leafPath returns the path of a field of an entry.
func (p place) leafPath(e entry, leaf string) fieldpath.Path {
	return append(p.pathTo(e), fieldpath.PathElement{FieldName: &leaf})
}
