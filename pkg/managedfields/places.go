// SPDX-License-Identifier: Apache-2.0

package managedfields

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// place is one map, list or field of a child that inherits, with what is there and what should be.
type place struct {
	form
	// path leads there, as field names; fields is the same as managed fields have it.
	path   []string
	fields fieldpath.Path
	// current is what the child has, in its order; desired is what it should inherit, sorted.
	current, desired []entry
	// after is what is there after the write, and ours what we own of it then.
	after, ours []entry
}

// form is how a place has its entries: as members of a map, as elements of a list, or as the one value of a field.
type form interface {
	// below appends the path from the place to an entry, which it may point to.
	below(path fieldpath.Path, e *entry) fieldpath.Path
	// render returns the JSON value of a place with these entries.
	render(entries []entry) any
}

// entry is one member of a place: a label, an annotation, a taint.
type entry struct {
	// name is how people call it, unique within its place.
	name  string
	value any
	claim inherit.Claim
	// leaves are the fields of a list's element, which are owned with it. Members of maps have none.
	leaves map[string]string
	// path leads to it.
	path fieldpath.Path
}

// equal reports whether two entries are stored as the same.
func (e entry) equal(other entry) bool {
	if e.leaves != nil || other.leaves != nil {
		return e.name == other.name && maps.Equal(e.leaves, other.leaves)
	}
	return e.name == other.name && e.value == other.value
}

// members are those of a map of labels or annotations.
type members struct{}

func (members) below(path fieldpath.Path, e *entry) fieldpath.Path {
	return append(path, fieldpath.PathElement{FieldName: &e.name})
}

func (members) render(entries []entry) any {
	m := make(map[string]any, len(entries))
	for _, e := range entries {
		m[e.name] = e.value
	}
	return m
}

// elements are those of a list. It has the names of the fields that Cluster API's CRDs declare as the list's keys, sorted.
type elements []string

func (keys elements) below(path fieldpath.Path, e *entry) fieldpath.Path {
	key := make(value.FieldList, 0, len(keys))
	for _, name := range keys {
		key = append(key, value.Field{Name: name, Value: value.NewValueInterface(e.leaves[name])})
	}
	return append(path, fieldpath.PathElement{Key: &key})
}

func (elements) render(entries []entry) any {
	list := make([]any, 0, len(entries))
	for _, e := range entries {
		element := make(map[string]any, len(e.leaves))
		for name, leaf := range e.leaves {
			element[name] = leaf
		}
		list = append(list, element)
	}
	return list
}

// single is the one value of a field.
type single struct{}

func (single) below(path fieldpath.Path, _ *entry) fieldpath.Path { return path }

func (single) render(entries []entry) any { return entries[0].value }

// places lists every place of a child in which it may inherit.
func places(current, desired inherit.Object) []place {
	all := placesOf(current.Layout.Top, current.Top, desired.Top)
	if current.Template == nil {
		return all
	}
	return append(all, placesOf(current.Layout.Template, *current.Template, ptr.Deref(desired.Template, inherit.Content{}))...)
}

// placesOf leaves out what the object's layout does not have.
func placesOf(at inherit.Paths, current, desired inherit.Content) []place {
	var all []place
	if at.Metadata != nil {
		all = []place{{
			form: members{}, path: append(slices.Clone(at.Metadata), "labels"),
			current: mapEntries(current.Labels, nil), desired: mapEntries(desired.Labels, nil),
		}, {
			form: members{}, path: append(slices.Clone(at.Metadata), "annotations"),
			current: mapEntries(current.Annotations, nil), desired: mapEntries(desired.Annotations, desired.Claims),
		}}
	}
	all = append(all, place{
		form: elements{"effect", "key"}, path: at.Taints,
		current: taintEntries(current.Taints, nil), desired: taintEntries(taint.Merge(desired.Taints, nil), desired.Claims),
	})
	all = append(all, fieldPlaces(at, current.Fields, desired.Fields)...)
	all = slices.DeleteFunc(all, func(p place) bool { return p.path == nil })
	for i := range all {
		fields := fieldPathOf(all[i].path)
		locate(all[i].form, fields, all[i].current)
		locate(all[i].form, fields, all[i].desired)
		all[i].fields = fields
	}
	return all
}

func mapEntries(m map[string]string, claims map[string]inherit.Claim) []entry {
	entries := make([]entry, 0, len(m))
	for key, value := range m {
		entries = append(entries, entry{name: key, value: value, claim: claims[key]})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return entries
}

func taintEntries(taints []clusterv1.MachineTaint, claims map[string]inherit.Claim) []entry {
	entries := make([]entry, 0, len(taints))
	for _, t := range taints {
		leaves := map[string]string{"effect": string(t.Effect), "key": t.Key, "propagation": string(t.Propagation)}
		if t.Value != "" {
			leaves["value"] = t.Value
		}
		name := taint.MachineID(t).String()
		entries = append(entries, entry{name: name, value: t, claim: claims[name], leaves: leaves})
	}
	return entries
}

// among returns those of the current entries that a set of fields has.
func (p place) among(set *fieldpath.Set) []entry {
	return slices.DeleteFunc(slices.Clone(p.current), func(e entry) bool { return !set.Has(e.path) })
}

// change describes what becomes of an entry, and called says what the rules call it.
func (p place) change(e entry, to any) Change {
	return Change{Place: strings.Join(p.path, "."), Name: e.name, Value: to}
}

func (p place) called(e entry) inherit.Entry {
	return p.change(e, nil).Entry()
}

func fieldPathOf(names []string) fieldpath.Path {
	path := make(fieldpath.Path, len(names))
	for i := range names {
		path[i].FieldName = &names[i]
	}
	return path
}

// locate gives entries of a place their paths, which share one array: a plan asks for each of them several times.
func locate(form form, place fieldpath.Path, entries []entry) {
	paths := make(fieldpath.Path, 0, len(entries)*(len(place)+1))
	for i := range entries {
		start := len(paths)
		paths = form.below(append(paths, place...), &entries[i])
		entries[i].path = slices.Clip(paths[start:])
	}
}

// pathsOf appends the paths of an entry and of its fields.
func pathsOf(paths []fieldpath.Path, e entry) []fieldpath.Path {
	paths = append(paths, e.path)
	for leaf := range e.leaves {
		paths = append(paths, leafPath(e, leaf))
	}
	return paths
}

// leafPath returns the path of a field of an entry.
func leafPath(e entry, leaf string) fieldpath.Path {
	return append(e.path, fieldpath.PathElement{FieldName: &leaf})
}

// fieldPlaces lists the in-place mutable fields.
func fieldPlaces(at inherit.Paths, current, desired inherit.Fields) []place {
	var all []place
	for f := range current.Seconds {
		all = append(all, scalarPlace(at, inherit.Field(f), current.Seconds[f], desired.Seconds[f]))
	}
	return append(all, gatePlace(at, current.ReadinessGates, desired.ReadinessGates))
}

func scalarPlace(at inherit.Paths, f inherit.Field, current, desired *int32) place {
	path := at.Fields[f]
	entries := func(seconds *int32) []entry {
		if seconds == nil || path == nil {
			return nil
		}
		return []entry{{name: path[len(path)-1], value: at.Value(f, *seconds)}}
	}
	return place{form: single{}, path: path, current: entries(current), desired: entries(desired)}
}

func gatePlace(at inherit.Paths, current, desired []clusterv1.MachineReadinessGate) place {
	return place{form: elements{"conditionType"}, path: at.Fields[inherit.ReadinessGates], current: gateEntries(current), desired: gateEntries(desired)}
}

func gateEntries(gates []clusterv1.MachineReadinessGate) []entry {
	seen := sets.New[string]()
	entries := make([]entry, 0, len(gates))
	for _, gate := range gates {
		if seen.Has(gate.ConditionType) {
			continue
		}
		seen.Insert(gate.ConditionType)
		leaves := map[string]string{"conditionType": gate.ConditionType}
		if gate.Polarity != "" {
			leaves["polarity"] = string(gate.Polarity)
		}
		entries = append(entries, entry{name: gate.ConditionType, value: gate, leaves: leaves})
	}
	return entries
}

// Change is one label, annotation or taint that a plan adds, replaces or removes.
type Change struct {
	// Place is the dotted path of the map or list, such as "metadata.labels".
	Place string
	// Name is the key, or "<key>:<effect>" of a taint.
	Name string
	// Value is what it becomes; nil where it is removed.
	Value any
}

// What tells whether it is a label, an annotation, a taint or a field.
func (c Change) What() string {
	switch {
	case strings.HasSuffix(c.Place, "taints"):
		return "taint"
	case strings.HasSuffix(c.Place, "labels"):
		return "label"
	case strings.HasSuffix(c.Place, "annotations"):
		return "annotation"
	default:
		return "field"
	}
}

// Entry names what changes.
func (c Change) Entry() inherit.Entry {
	return inherit.Entry{What: c.What(), Name: c.Name, Own: !c.inTemplate()}
}

func (c Change) inTemplate() bool {
	return strings.HasPrefix(c.Place, "spec.template.") || strings.HasPrefix(c.Place, "spec.machineTemplate.")
}

// String describes a change in the words of a warning, such as `label "team"`.
func (c Change) String() string {
	kind := c.What()
	if c.inTemplate() {
		kind = "template " + kind
	}
	return fmt.Sprintf("%s %q", kind, c.Name)
}

// Carried returns a function that reports whether a change adds what an object had already. It takes any number of changes.
func Carried(object inherit.Object) func(Change) bool {
	had := sets.New[Change]()
	for _, at := range places(object, inherit.Object{}) {
		for _, e := range at.current {
			had.Insert(at.change(e, e.value))
		}
	}
	return had.Has
}
