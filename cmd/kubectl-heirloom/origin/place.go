// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/rules"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// place is one place of an object, its top or its Machine template.
type place struct {
	template bool
	paths    inherit.Paths
	// has is what is there; desired is what the rules give it.
	has, desired content
	// changes are the entries that the next write would add, replace or remove.
	changes map[inherit.Entry]bool
	// origin says where an inherited entry comes from.
	origin func(inherit.Entry) origin
	// records returns the annotations of a Node that list an entry; nil for other objects.
	records func(inherit.Entry) []string
	// listKey is the field that tells the sections of a topology or a class apart.
	listKey string
	// atomicTaints says that all taints are one field for the API server.
	atomicTaints bool
}

// origin is where an inherited entry comes from, and how.
type origin struct {
	inherit.Source
	rule  string
	steps []string
	// record says what an entry is for that is bookkeeping; then there is no source.
	record string
}

// places are those of an object of Cluster API.
func places(current, desired inherit.Object, changes []managedfields.Change, from func(inherit.Entry) origin) []place {
	changing := map[inherit.Entry]bool{}
	for _, change := range changes {
		changing[sameIn(change.Entry)] = true
	}
	layout := current.Layout
	top := place{
		paths: layout.Top, has: contentOf(current.Top, layout.Top), desired: contentOf(desired.Top, layout.Top), origin: from, changes: changing,
	}
	maps.DeleteFunc(top.desired, func(i id, v value) bool { // the object's own taint wins
		has, there := top.has[i]
		return i.kind == Taint && there && desired.Top.Claims[i.name()] == inherit.Default && has != v
	})
	if current.Template == nil {
		return []place{top}
	}
	template := place{template: true, paths: layout.Template, has: contentOf(*current.Template, layout.Template), origin: from, changes: changing}
	if desired.Template != nil {
		template.desired = contentOf(*desired.Template, layout.Template)
	}
	return []place{top, template}
}

// sameIn drops where an entry is if an object can have it in one place only: taints and fields.
func sameIn(e inherit.Entry) inherit.Entry {
	if e.What == string(Taint) || e.What == string(Field) {
		e.Own = false
	}
	return e
}

// describe returns "<kind> <namespace>/<name> <field>".
func describe(s inherit.Source) string {
	if s.Object == nil {
		return s.String()
	}
	return strings.TrimSpace(s.Ref.String() + " " + s.Field)
}

// structured returns a source for programs.
func structured(s inherit.Source) *Source {
	if s.Object == nil {
		return nil
	}
	return &Source{Kind: s.Kind, Namespace: s.Object.GetNamespace(), Name: s.Object.GetName(), Field: s.Field}
}

// field returns the path of an entry's map or list, or of a field itself.
func (p place) field(i id) []string {
	switch {
	case i.kind == Label:
		return slices.Concat(p.paths.Metadata, []string{"labels"})
	case i.kind == Annotation:
		return slices.Concat(p.paths.Metadata, []string{"annotations"})
	case i.gate:
		return p.paths.Fields[inherit.ReadinessGates]
	case i.kind == Field:
		return p.paths.Fields[inherit.FieldOf(i.key)]
	default:
		return p.paths.Taints
	}
}

// fieldPath returns the field by which the API server knows an entry.
func (p place) fieldPath(i id) fieldpath.Path {
	var path fieldpath.Path
	for _, name := range p.field(i) {
		list, item, isItem := strings.Cut(strings.TrimSuffix(name, "]"), "[")
		path = append(path, fieldpath.PathElement{FieldName: &list})
		if isItem {
			path = append(path, fieldpath.PathElement{Key: fieldpath.KeyByFields(p.listKey, item)})
		}
	}
	switch {
	case i.gate:
		return append(path, fieldpath.PathElement{Key: fieldpath.KeyByFields("conditionType", i.key)})
	case i.kind == Field, i.kind == Taint && p.atomicTaints:
		return path
	case i.kind == Taint:
		return append(path, fieldpath.PathElement{Key: fieldpath.KeyByFields("effect", string(i.effect), "key", i.key)})
	default:
		return append(path, fieldpath.PathElement{FieldName: &i.key})
	}
}

func (p place) entries(owners managers) []Entry {
	var all []Entry
	for i, v := range p.has {
		all = append(all, p.entry(i, v, owners.of(p.fieldPath(i))))
	}
	for i, want := range p.desired {
		if _, there := p.has[i]; !there && p.changes[sameIn(p.named(i))] {
			all = append(all, p.missing(i, want))
		}
	}
	return all
}

// named is what the rules call an entry of the place.
func (p place) named(i id) inherit.Entry {
	return inherit.Entry{What: string(i.kind), Name: i.name(), Own: !p.template && i.kind != Taint}
}

// missing is an entry that the object inherits and does not have.
func (p place) missing(i id, want value) Entry {
	e := p.newEntry(i, want)
	e.Status = Missing
	e.comesFrom(p.origin(p.named(i)))
	return e
}

func (p place) newEntry(i id, v value) Entry {
	e := Entry{Kind: i.kind, Key: i.shown(), Value: v.text, Propagation: v.propagation}
	if p.template {
		e.Kind = "template " + i.kind
	}
	return e
}

// entry is one that the object has.
func (p place) entry(i id, v value, owners []string) Entry {
	whole := p.atomicTaints && i.kind == Taint
	e := p.newEntry(i, v)
	e.Status, e.Managers, e.From = Own, owners, setHere(owners, whole)
	e.OwnedByHeirloom = !whole && slices.Contains(owners, managedfields.Manager)
	if p.records != nil {
		e.Records = p.records(p.named(i))
	}
	want, declared := p.desired[i]
	changes := p.changes[sameIn(p.named(i))]
	switch {
	case !declared && changes:
		e.Status = Differs
		e.From += "; no owner declares it any more"
	case !declared:
	case p.origin(p.named(i)).record != "":
		e.Status, e.From = Record, p.origin(p.named(i)).record
	case want == v || !changes && keepsValue(i, v, want):
		e.Status = AsDeclared
		e.comesFrom(p.origin(p.named(i)))
	default:
		e.declaredAs(p.origin(p.named(i)), want, changes)
	}
	return e
}

// comesFrom says where an entry is declared.
func (e *Entry) comesFrom(o origin) {
	e.From, e.Source, e.Rule, e.Steps = describe(o.Source), structured(o.Source), o.rule, o.steps
}

// declaredAs says that an owner declares another value, which the next write will bring if the object inherits it.
func (e *Entry) declaredAs(o origin, want value, inherits bool) {
	from := e.From
	e.comesFrom(o)
	e.From = fmt.Sprintf("%s; %s declares %s", from, e.From, want)
	e.Declared, e.DeclaredPropagation = &want.text, want.propagation
	if inherits {
		e.Status = Differs
	}
}

// keepsValue reports whether a taint is declared without a value, so that it keeps the one that it has.
func keepsValue(i id, has, want value) bool {
	return i.kind == Taint && want.text == "" && has.propagation == want.propagation
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

// follow returns a function that says where entries of an object come from, and by which rule. capacity are the entries that tell
// cluster-autoscaler of the object's Nodes.
func follow(object inherit.Ref, sources inherit.Sources, capacity func(inherit.Entry) bool) func(inherit.Entry) origin {
	return func(e inherit.Entry) origin {
		o := origin{Source: sources.Of(e)}
		path := pathOf(sources, e, object)
		if len(path) > 0 {
			for _, step := range path[1:] {
				o.steps = append(o.steps, step.String())
			}
			owner := path[len(path)-1].Kind
			o.rule = fmt.Sprintf("%s → %s (rule %d)", owner, object.Kind, ruleOf(owner, object, e))
		} else if capacity(e) {
			o.rule = "rule 14"
		}
		return o
	}
}

// ruleOf returns the number of the rule, as docs/rules.md has it, by which an object inherits an entry from an owner of that kind.
func ruleOf(owner string, object inherit.Ref, e inherit.Entry) int {
	switch object.Object.(type) {
	case *corev1.Node:
		return map[string]int{string(Label): 11, string(Annotation): 12, string(Taint): 13}[e.What]
	case *inherit.ControlPlane:
		return 1
	case *clusterv1.MachineDeployment:
		return 2
	case *clusterv1.MachinePool:
		return 3
	case *clusterv1.MachineSet:
		if e.Own && e.What == string(Annotation) {
			return 5
		}
		return 6
	}
	switch owner {
	case "MachineSet":
		return 8
	case "MachinePool":
		return 9
	}
	return 4
}

// pathOf returns the objects through which an entry reaches an object that inherits it: the one that declares it, and those between
// the two, from the top. A Cluster and its ClusterClass both declare for the objects of a topology, so neither is between.
func pathOf(sources inherit.Sources, e inherit.Entry, object inherit.Ref) []inherit.Ref {
	declarer := sources.Of(e).Ref
	var path []inherit.Ref
	for _, d := range sources.All {
		switch {
		case rules.Same(d.Ref, object):
			return path
		case d.Ref == declarer, len(path) > 0 && d.Kind != "ClusterClass":
			path = append(path, d.Ref)
		}
	}
	return path
}
