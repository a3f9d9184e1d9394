// SPDX-License-Identifier: Apache-2.0

package managedfields

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// The sorts of entries that a place can hold, as in inherit.Entry.
const (
	labels      = "label"
	annotations = "annotation"
	taints      = "taint"
	fields      = "field"
)

// place is a map, a list or a field of a child.
type place struct {
	holds string
	// own says that the place is at the object's top, not in its Machine template.
	own bool
	// field is the in-place field, if the place holds a field. paths are all paths of the same part of the object.
	field inherit.Field
	paths *inherit.Paths
	// path is the path of the place, as field names.
	path []string
	// keys are the list map keys in Cluster API's CRDs, which identify the elements of a list, sorted; nil for maps and numbers.
	keys []string
	// entries are the entries of the child, in its order, and then the desired entries that it lacks.
	entries []entry
}

// entry is a label, an annotation, a taint, a readiness gate or a number.
type entry struct {
	inherit.Entry
	claim inherit.Claim
	// place is the path of the entry's place, and path the path of the entry, in the form of managed fields.
	place []string
	path  fieldpath.Path
	// has is the item of the child, and want the desired item; after is the item after the write, and owned the part of it that we own.
	has, want, after, owned item
}

// item is the content of an entry. The zero item means that there is no content.
type item struct {
	value any
	// leaves are the fields of a list's element, which are owned together with the element; nil for other items.
	leaves map[string]any
}

func (i item) none() bool { return i.value == nil }

// equal reports whether two items are stored identically.
func (i item) equal(other item) bool {
	if i.leaves != nil || other.leaves != nil {
		return maps.Equal(i.leaves, other.leaves)
	}
	return i.value == other.value
}

// leaf returns the path of a field of an entry.
func (e entry) leaf(name string) fieldpath.Path {
	return append(e.path, fieldpath.PathElement{FieldName: &name})
}

// wanted adds the paths of an entry and of its desired leaves to a set of fields.
func (e entry) wanted(set *fieldpath.Set) {
	set.Insert(e.path)
	for name := range e.want.leaves {
		set.Insert(e.leaf(name))
	}
}

func (e entry) changes() bool { return !e.after.equal(e.has) }

// places returns every place of a child in which it can inherit, with current and desired items.
func places(current, desired inherit.Object) []place {
	all := placesAt(&current.Layout.Top, true, current.Top, desired.Top)
	if current.Template == nil {
		return all
	}
	return append(all, placesAt(&current.Layout.Template, false, *current.Template, ptr.Deref(desired.Template, inherit.Content{}))...)
}

// placesAt returns the places of a part of the object. It leaves out places that the object's layout does not have.
func placesAt(paths *inherit.Paths, own bool, current, desired inherit.Content) []place {
	all := make([]place, 0, 3+len(paths.Fields))
	add := func(holds string, field inherit.Field, path []string, keys ...string) {
		if path != nil {
			at := place{holds: holds, own: own, field: field, paths: paths, path: path, keys: keys}
			at.entries = paired(at.read(current), at.read(desired))
			at.locate()
			all = append(all, at)
		}
	}
	if paths.Metadata != nil {
		add(labels, 0, slices.Concat(paths.Metadata, []string{"labels"}))
		add(annotations, 0, slices.Concat(paths.Metadata, []string{"annotations"}))
	}
	add(taints, 0, paths.Taints, "effect", "key")
	const gates = inherit.ReadinessGates
	for f, path := range paths.Fields[:gates] {
		add(fields, inherit.Field(f), path)
	}
	add(fields, gates, paths.Fields[gates], gates.ListKey())
	return all
}

// read returns the entries of content that belong to a place.
func (p place) read(content inherit.Content) []entry {
	var all []entry
	add := func(name string, claim inherit.Claim, value any, leaves map[string]any) {
		all = append(all, entry{Entry: inherit.Entry{What: p.holds, Name: name, Own: p.own}, place: p.path, claim: claim, has: item{value, leaves}})
	}
	switch {
	case p.holds == labels:
		all = make([]entry, 0, len(content.Labels))
		for key, value := range content.Labels {
			add(key, inherit.Owned, value, nil)
		}
	case p.holds == annotations:
		all = make([]entry, 0, len(content.Annotations))
		for key, value := range content.Annotations {
			add(key, content.Claims[key], value, nil)
		}
	case p.holds == taints:
		for _, t := range content.Taints {
			name := taint.MachineID(t).String()
			leaves := map[string]any{"effect": string(t.Effect), "key": t.Key, "propagation": string(t.Propagation), "value": t.Value}
			add(name, content.Claims[name], t, set(leaves))
		}
	case p.field == inherit.ReadinessGates:
		for _, gate := range content.Fields.ReadinessGates {
			add(gate.ConditionType, inherit.Owned, gate, set(map[string]any{"conditionType": gate.ConditionType, "polarity": string(gate.Polarity)}))
		}
	case content.Fields.Seconds[p.field] != nil:
		add(p.path[len(p.path)-1], inherit.Owned, p.paths.Value(p.field, *content.Fields.Seconds[p.field]), nil)
	}
	if p.isMap() {
		slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	}
	return all
}

// set returns the leaves that have a value. It removes the others from the map.
func set(leaves map[string]any) map[string]any {
	maps.DeleteFunc(leaves, func(_ string, value any) bool { return value == "" })
	return leaves
}

// paired returns the entries of the child, combined with their desired items, and then the desired entries that it lacks. If several
// desired entries have the same name, the first counts.
func paired(has, wants []entry) []entry {
	if len(wants) == 0 {
		return has
	}
	byName := make(map[string]*entry, len(wants))
	for i := range slices.Backward(wants) {
		byName[wants[i].Name] = &wants[i]
	}
	for i := range has {
		if want := byName[has[i].Name]; want != nil {
			has[i].want, has[i].claim, want.want = want.has, want.claim, want.has
		}
	}
	for i, e := range wants {
		if byName[e.Name] == &wants[i] && e.want.none() {
			e.has, e.want = item{}, e.has
			has = append(has, e)
		}
	}
	return has
}

// locate sets the paths of the entries, which share an array, because a plan uses each path several times.
func (p place) locate() {
	paths := make(fieldpath.Path, 0, len(p.entries)*(len(p.path)+1))
	for i := range p.entries {
		e, start := &p.entries[i], len(paths)
		paths = appendNames(paths, p.path)
		if p.isMap() {
			paths = append(paths, fieldpath.PathElement{FieldName: &e.Name})
		}
		if p.keys != nil {
			key := make(value.FieldList, 0, len(p.keys))
			for _, name := range p.keys {
				key = append(key, value.Field{Name: name, Value: value.NewValueInterface(cmp.Or(e.has.leaves[name], e.want.leaves[name]))})
			}
			paths = append(paths, fieldpath.PathElement{Key: &key})
		}
		e.path = slices.Clip(paths[start:])
	}
}

func appendNames(path fieldpath.Path, names []string) fieldpath.Path {
	for i := range names {
		path = append(path, fieldpath.PathElement{FieldName: &names[i]})
	}
	return path
}

func (p place) isMap() bool { return p.holds == labels || p.holds == annotations }

// value returns the JSON value of the place, with one item for each entry, from of, or nil if there are no items.
func (p place) value(of func(entry) item) any {
	m, list := map[string]any{}, []any{}
	for _, e := range p.entries {
		switch item := of(e); {
		case item.none():
		case p.isMap():
			m[e.Name] = item.value
		case p.keys != nil:
			list = append(list, item.leaves)
		default:
			return item.value
		}
	}
	switch {
	case len(m) > 0:
		return m
	case len(list) > 0:
		return list
	}
	return nil
}
