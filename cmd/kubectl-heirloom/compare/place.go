// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// place is a place of an object: its top or its Machine template.
type place struct {
	template bool
	paths    inherit.Paths
	// has holds the entries at the place; desired holds the entries that the rules give it.
	has, desired content
	// changes are the entries that the next write would add, replace or remove.
	changes map[inherit.Entry]bool
	// listKey is the field that identifies the sections of a topology or a class.
	listKey string
	// node says that the place is the top of a Node, where all taints are a single field for the API server.
	node bool
}

// placesOf returns the places of an object of Cluster API.
func placesOf(current, desired inherit.Object, changes []managedfields.Change) []place {
	changing := map[inherit.Entry]bool{}
	for _, change := range changes {
		changing[anywhere(change.Entry)] = true
	}
	layout := current.Layout
	top := place{paths: layout.Top, has: contentOf(current.Top, layout.Top, true), desired: contentOf(desired.Top, layout.Top, true), changes: changing}
	maps.DeleteFunc(top.desired, func(e inherit.Entry, v value) bool { // the object's own taint takes precedence
		has, there := top.has[e]
		return e.What == string(Taint) && there && desired.Top.Claims[e.Name] == inherit.Default && has != v
	})
	if current.Template == nil {
		return []place{top}
	}
	template := place{template: true, paths: layout.Template, has: contentOf(*current.Template, layout.Template, false), changes: changing}
	if desired.Template != nil {
		template.desired = contentOf(*desired.Template, layout.Template, false)
	}
	return []place{top, template}
}

// anywhere drops the place of an entry that an object can have in only one place: of a taint or a field.
func anywhere(e inherit.Entry) inherit.Entry {
	if e.What == string(Taint) || e.What == string(Field) {
		e.Own = false
	}
	return e
}

// entries compares the entries at the place with the desired entries.
func (p place) entries(o *Object, managers func(fieldpath.Path) []string) []Entry {
	var all []Entry
	for of, v := range p.has {
		all = append(all, p.entry(o, of, v, managers(p.fieldPath(of))))
	}
	for of, want := range p.desired {
		if _, there := p.has[of]; !there && p.changes[anywhere(of)] {
			e := p.newEntry(of, want)
			e.Status = Missing
			e.comesFrom(o)
			all = append(all, e)
		}
	}
	return all
}

func (p place) newEntry(of inherit.Entry, v value) Entry {
	e := Entry{
		Kind: Kind(of.What), Key: Shown(of), Value: v.text, Propagation: v.propagation, Of: of, Field: strings.Join(p.field(of), "."),
		WholeList: p.node && of.What == string(Taint),
	}
	if p.template {
		e.Kind = "template " + e.Kind
	}
	return e
}

// entry returns an entry that the object has.
func (p place) entry(o *Object, of inherit.Entry, v value, owners []string) Entry {
	e := p.newEntry(of, v)
	e.Status, e.Managers = Local, owners
	e.OwnedByHeirloom = !e.WholeList && slices.Contains(owners, managedfields.Manager)
	want, declared := p.desired[of]
	changes := p.changes[anywhere(of)]
	switch {
	case !declared && changes:
		e.Status = Differs
	case !declared:
		e.patched(o)
	case p.node && o.records(of):
		e.Record = true
	case want == v,
		!changes && of.What == string(Taint) && want == value{propagation: v.propagation}: // a taint that is declared without a value keeps its value
		e.Status = Declared
		e.comesFrom(o)
	default: // the value that is set here may take precedence
		e.comesFrom(o)
		e.Declared, e.DeclaredPropagation = &want.text, want.propagation
		if changes {
			e.Status = Differs
		}
	}
	return e
}

// comesFrom sets the source of an entry, its rule, and the objects through which it comes.
func (e *Entry) comesFrom(o *Object) {
	e.From = o.Sources.Of(e.Of)
	e.Source = SourceOf(e.From)
	way := wayOf(o.Sources, e.Of, o.Ref)
	for _, step := range way[min(1, len(way)):] {
		e.Steps = append(e.Steps, step.String())
	}
	switch {
	case len(way) > 0:
		owner := way[len(way)-1].Kind
		e.Rule = fmt.Sprintf("%s → %s (rule %d)", owner, o.Kind, ruleOf(owner, o.Ref, e.Of))
	case e.Of.Own && o.Would.Desired.Top.Claims[e.Of.Name] == inherit.Yielding: // data for cluster-autoscaler about the object's Nodes
		e.Rule = "rule 14"
	}
}

// ruleOf returns the number of the rule in docs/rules.md by which an object inherits an entry from an owner of a kind.
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

// wayOf returns the objects through which an object inherits an entry, from the top: the object that declares it, and the objects between.
// A Cluster and its ClusterClass both declare for the objects of a topology, so neither is between.
func wayOf(sources inherit.Sources, e inherit.Entry, object inherit.Ref) []inherit.Ref {
	declarer := sources.Of(e).Ref
	var way []inherit.Ref
	for _, d := range sources.All {
		switch {
		case d.String() == object.String():
			return way
		case d.Ref == declarer, len(way) > 0 && d.Kind != "ClusterClass":
			way = append(way, d.Ref)
		}
	}
	return way
}

// field returns the path of an entry's map or list, or of a field itself.
func (p place) field(e inherit.Entry) []string {
	switch Kind(e.What) {
	case Label, Annotation:
		return append(slices.Clone(p.paths.Metadata), e.What+"s")
	case Taint:
		return p.paths.Taints
	}
	return p.paths.Fields[inherit.FieldOf(e.Name)]
}

// fieldPath returns the path by which the API server tracks an entry in managed fields.
func (p place) fieldPath(e inherit.Entry) fieldpath.Path {
	var path fieldpath.Path
	for _, name := range p.field(e) {
		list, item, isItem := strings.Cut(strings.TrimSuffix(name, "]"), "[")
		path = append(path, fieldpath.PathElement{FieldName: &list})
		if isItem {
			path = append(path, fieldpath.PathElement{Key: fieldpath.KeyByFields(p.listKey, item)})
		}
	}
	switch {
	case isGate(e):
		return append(path, fieldpath.PathElement{Key: fieldpath.KeyByFields("conditionType", e.Name)})
	case e.What == string(Field), e.What == string(Taint) && p.node:
		return path
	case e.What == string(Taint):
		key, effect, _ := strings.Cut(e.Name, ":")
		return append(path, fieldpath.PathElement{Key: fieldpath.KeyByFields("effect", effect, "key", key)})
	}
	return append(path, fieldpath.PathElement{FieldName: &e.Name})
}

// readManagers reads metadata.managedFields. The result returns the managers that own a field, sorted.
func readManagers(entries []metav1.ManagedFieldsEntry) (of func(fieldpath.Path) []string, err error) {
	owned := map[string]*fieldpath.Set{}
	for _, entry := range entries {
		if entry.FieldsV1 == nil || len(entry.FieldsV1.GetRawBytes()) == 0 {
			continue
		}
		fields := fieldpath.NewSet()
		if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
			return nil, fmt.Errorf("reading metadata.managedFields of manager %q: %w", entry.Manager, err)
		}
		if others := owned[entry.Manager]; others != nil {
			fields = fields.Union(others)
		}
		owned[entry.Manager] = fields
	}
	return func(path fieldpath.Path) (names []string) {
		for _, name := range slices.Sorted(maps.Keys(owned)) {
			if owned[name].Has(path) {
				names = append(names, name)
			}
		}
		return names
	}, nil
}
