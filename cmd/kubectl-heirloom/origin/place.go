// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/capi"
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

// place is one place of an object, its top or its Machine template.
type place struct {
	template bool
	paths    capi.Paths
	// has is what is there; desired is what the rules give it.
	has, desired content
	// from says where an inherited entry is declared, or what an entry is for that is not inherited.
	from func(inherit.Entry) (from string, inherited bool)
	// atomicTaints says that all taints are one field for the API server.
	atomicTaints bool
}

// places are those of an object of Cluster API.
func places(current, desired inherit.Object, sources inherit.Sources) []place {
	from := func(e inherit.Entry) (string, bool) { return describe(sources.Of(e)), true }
	top := place{paths: current.Layout.Top, has: contentOf(current.Top), desired: contentOf(desired.Top), from: from}
	maps.DeleteFunc(top.desired, func(i id, v value) bool { // the object's own taint wins
		claim := desired.Top.Claims[taint.ID{Key: i.key, Effect: i.effect}.String()]
		return i.kind == Taint && claim == inherit.Default && top.has[i] != v
	})
	if current.Template == nil {
		return []place{top}
	}
	template := place{template: true, paths: current.Layout.Template, has: contentOf(*current.Template), from: from}
	if desired.Template != nil {
		template.desired = contentOf(*desired.Template)
	}
	return []place{top, template}
}

// describe returns "<kind> <namespace>/<name> <field>".
func describe(s inherit.Source) string {
	if s.Object == nil {
		return s.String()
	}
	return strings.TrimSpace(s.Ref.String() + " " + s.Field)
}

// field returns the map or list of an entry.
func (p place) field(i id) []string {
	switch i.kind {
	case Label:
		return slices.Concat(p.paths.Metadata, []string{"labels"})
	case Annotation:
		return slices.Concat(p.paths.Metadata, []string{"annotations"})
	default:
		return p.paths.Taints
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
	e.From = setHere(owners, whole)
	if want, declared := p.desired[i]; declared {
		from, inherited := p.from(inherit.Entry{What: string(i.kind), Name: e.Key, Own: !p.template && i.kind != Taint})
		if !inherited || want == v {
			e.From, e.Inherited = from, inherited
		} else {
			e.From += fmt.Sprintf("; %s declares %s", from, want)
		}
	}
	if p.template {
		e.Kind = "template " + i.kind
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
