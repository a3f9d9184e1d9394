// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownership"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// id names an entry within a place. Only taints have an effect; the kind is never one of a template.
type id struct {
	kind   Kind
	key    string
	effect corev1.TaintEffect
}

// value is what an entry says. Only taints of Machines have a propagation.
type value struct {
	text, propagation string
}

// content is all that can be inherited at one place.
type content map[id]value

func contentOf(c inherit.Content) content {
	all := contentOfMaps(c.Labels, c.Annotations)
	for _, t := range c.Taints {
		all[id{Taint, t.Key, t.Effect}] = value{t.Value, string(t.Propagation)}
	}
	return all
}

func contentOfNode(s inherit.NodeState) content {
	all := contentOfMaps(s.Labels, s.Annotations)
	for _, t := range s.Taints {
		all[id{Taint, t.Key, t.Effect}] = value{text: t.Value}
	}
	return all
}

func contentOfMaps(labels, annotations map[string]string) content {
	all := content{}
	for key, text := range labels {
		all[id{kind: Label, key: key}] = value{text: text}
	}
	for key, text := range annotations {
		all[id{kind: Annotation, key: key}] = value{text: text}
	}
	return all
}

// sources says of entries where they are declared, "<kind> <namespace>/<name> <field>".
type sources map[id]string

// inherited is an entry that the rules bring, and its source.
type inherited struct {
	value
	from string
}

// place is one place of an object, its top or its template.
type place struct {
	// object is "<kind> <namespace>/<name>"; path leads to the place.
	object string
	path   []string
	// has is what is there, inherits what the rules bring.
	has      content
	inherits map[id]inherited
	// records says what the entries are for that the rules write about what they bring.
	records sources
	// atomicTaints says that all taints are one field for the API server.
	atomicTaints bool
}

// bring makes the place inherit what the rules bring, as far as it has a source.
func bring(brought content, from sources) map[id]inherited {
	all := map[id]inherited{}
	for i, v := range brought {
		if source, ok := from[i]; ok {
			all[i] = inherited{v, source}
		}
	}
	return all
}

// sources returns where everything at this place comes from, for those who inherit it from here.
func (p place) sources() sources {
	all := sources{}
	for i, v := range p.has {
		all[i] = p.object + " " + strings.Join(p.field(i), ".")
		if from, ok := p.inherits[i]; ok && from.value == v {
			all[i] = from.from
		}
	}
	return all
}

// field returns the map or list of an entry.
func (p place) field(i id) []string {
	switch i.kind {
	case Label:
		return slices.Concat(p.path, []string{"metadata", "labels"})
	case Annotation:
		return slices.Concat(p.path, []string{"metadata", "annotations"})
	default:
		return slices.Concat(p.path, []string{"spec", "taints"})
	}
}

// fieldPath returns the field by which the API server knows an entry.
func (p place) fieldPath(i id) fieldpath.Path {
	var path fieldpath.Path
	for _, name := range p.field(i) {
		path = append(path, fieldpath.PathElement{FieldName: &name})
	}
	switch {
	case i.kind != Taint:
		return append(path, fieldpath.PathElement{FieldName: &i.key})
	case p.atomicTaints:
		return path
	default:
		return append(path, fieldpath.PathElement{Key: fieldpath.KeyByFields("effect", string(i.effect), "key", i.key)})
	}
}

func (p place) entries(owners managers) []Entry {
	all := make([]Entry, 0, len(p.has))
	for i, v := range p.has {
		all = append(all, p.entry(i, v, owners.of(p.fieldPath(i))))
	}
	sortEntries(all)
	return all
}

func (p place) entry(i id, v value, owners []string) Entry {
	whole := p.atomicTaints && i.kind == Taint
	e := Entry{
		Kind: i.kind, Key: i.key, Value: v.text, Propagation: v.propagation, Managers: owners,
		OwnedByHeirloom: !whole && slices.Contains(owners, ownership.Manager),
	}
	if i.kind == Taint {
		e.Key = taint.ID{Key: i.key, Effect: i.effect}.String()
	}
	if len(p.path) > 0 {
		e.Kind = "template " + i.kind
	}
	from, declared := p.inherits[i]
	switch record := p.records[i]; {
	case declared && from.value == v:
		e.From, e.Inherited = from.from, true
	case record != "":
		e.From = record
	default:
		e.From = setHere(owners, whole)
	}
	if declared && !e.Inherited {
		e.From += fmt.Sprintf("; %s declares %s", from.from, from.value)
	}
	return e
}

// setHere says who set an entry that is not inherited. Who wrote a list last need not have put every taint into it.
func setHere(owners []string, whole bool) string {
	switch {
	case len(owners) == 0:
		return "unknown"
	case whole:
		return "unknown (the list of taints was last written by " + strings.Join(owners, ", ") + ")"
	default:
		return "set here by " + strings.Join(owners, ", ")
	}
}

// String returns the value as people read it.
func (v value) String() string {
	if v.propagation == "" {
		return fmt.Sprintf("%q", v.text)
	}
	return fmt.Sprintf("%q (%s)", v.text, v.propagation)
}
