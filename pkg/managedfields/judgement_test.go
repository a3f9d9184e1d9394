// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// identify sets the fields that an API server requires of the object's kind.
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

// contentOf returns the content of an object.
func contentOf(object *unstructured.Unstructured) inherit.Object {
	switch object.GetKind() {
	case "Machine":
		return inherit.OfMachine(as(&clusterv1.Machine{}, object))
	case "MachineSet":
		return inherit.OfMachineSet(as(&clusterv1.MachineSet{}, object))
	case anyControlPlane:
		return controlPlaneIn(object, newer)
	}
	return inherit.OfMachineDeployment(as(&clusterv1.MachineDeployment{}, object))
}

func as[T any](into T, object *unstructured.Unstructured) T {
	raw, err := json.Marshal(map[string]any{ // without managed fields, which take longest and are not content
		"metadata": map[string]any{"labels": object.GetLabels(), "annotations": object.GetAnnotations()}, "spec": object.Object["spec"],
	})
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		panic(err)
	}
	return into
}

// put replaces the content of an object.
func put(object *unstructured.Unstructured, has inherit.Object) {
	layout := layoutOf(object.GetKind())
	putAt(object, layout.Top, has.Top)
	if has.Template != nil {
		putAt(object, layout.Template, *has.Template)
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
		set(at.Fields[f], n, n == nil)
	}
}

// cell is one entry: a label, an annotation, a taint, a readiness gate or a field.
type cell struct {
	path fieldpath.Path
	// leaves holds the values by the field of a list's element; the values of other entries have no name.
	leaves map[string]string
	taint  bool
	// byDefault: an existing entry wins; yields: Heirloom does not own an entry that another manager owns as well.
	byDefault, yields bool
}

func (c cell) leaf(name string) fieldpath.Path {
	if name == "" {
		return c.path
	}
	return append(c.path.Copy(), fieldpath.PathElement{FieldName: &name})
}

// cellsOf lists the entries of an object by path.
func cellsOf(has inherit.Object) map[string]cell {
	cells := map[string]cell{}
	addCells(cells, has.Layout.Top, has.Top)
	if has.Template != nil {
		addCells(cells, has.Layout.Template, *has.Template)
	}
	return cells
}

func addCells(cells map[string]cell, at inherit.Paths, has inherit.Content) {
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
		yields := has.Claims[key] == inherit.Yielding
		add(cell{path: pathTo(at.Metadata, "annotations", key), leaves: map[string]string{"": value}, byDefault: yields, yields: yields})
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
			add(cell{path: pathTo(path), leaves: map[string]string{"": fmt.Sprint(*n)}})
		}
	}
}

func pathTo(parts []string, more ...any) fieldpath.Path {
	var all []any
	for _, part := range parts {
		all = append(all, part)
	}
	return fieldpath.MakePathOrDie(append(all, more...)...)
}

// owners holds the owned fields of an object by manager.
type owners map[string]*fieldpath.Set

const us = managedfields.Manager + "/Apply"

// ownersIn also returns the fields that belong to the create of the object, and the fields that other managers own since.
func ownersIn(object *unstructured.Unstructured) (by owners, create, later *fieldpath.Set) {
	by, create, later = owners{us: fieldpath.NewSet()}, fieldpath.NewSet(), fieldpath.NewSet()
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
		if managedfields.OfCreate(entry, object.GetCreationTimestamp().Time) {
			create = create.Union(set)
		} else if key != us {
			later = later.Union(set)
		}
	}
	return by, create, later
}

// others reports whether another manager owns a field.
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

// wanted is the expected state of a cell: its values (none if it goes), and the values that Heirloom owns.
type wanted struct{ leaves, ours map[string]string }

// judgement is a write, with the known state of the object before and after it.
type judgement struct {
	*world
	before, after *unstructured.Unstructured
	plan          *managedfields.Plan
	had, has      map[string]cell
	desired       map[string]cell
	owned, owns   owners
	create, later *fieldpath.Set
	// lost: the object had no managed fields.
	lost bool
}

// judge checks for every entry and every manager that a write had the result that docs/design.md §2 states, and no other result.
//
// removed: the loop has only removed entries, and the object is now a copy to be adopted before entries are added. If no managed fields are
// left, entries may still be missing: taints by annotation and yielding annotations do not keep an object from being a copy.
func (w *world) judge(before, after *unstructured.Unstructured, plan *managedfields.Plan, removed bool) error {
	j := judgement{world: w, before: before, after: after, plan: plan, lost: len(before.GetManagedFields()) == 0}
	j.had, j.has = cellsOf(contentOf(before)), cellsOf(contentOf(after))
	j.owned, j.create, j.later = ownersIn(before)
	j.owns, _, _ = ownersIn(after)
	j.desired = w.expected(j.had, j.owned)
	maps.DeleteFunc(j.desired, func(id string, want cell) bool {
		_, there := j.had[id]
		return removed && want.byDefault && !there
	})
	if err := w.handOver(before, j.owned, j.owns); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(merged(j.had, j.desired))) {
		if err := j.cell(id); err != nil {
			return err
		}
	}
	return j.elsewhere(j.before, j.after)
}

// handOver lets before-first-apply own the unowned fields, if the API server assigned them in an apply. The field manager does so for an
// object without managed fields. Heirloom may have owned fields of this object, if nobody else did and Heirloom has released all of them:
// the loop removes first, and the field manager drops an entry that has become empty. No write of the loop could prevent this. Heirloom
// would also own the additions of a patch as Update, and a releasing apply removes unowned fields as well.
func (w *world) handOver(before *unstructured.Unstructured, owned, owns owners) error {
	const first = "before-first-apply/Update"
	if owns[first] == nil || len(owned) > 1 || !owned[us].Intersection(owns[us]).Empty() {
		return nil
	}
	unclaimed := before.DeepCopy()
	unclaimed.SetManagedFields(nil)
	all, err := w.managers.updated(w.empty(), unclaimed, "before-first-apply")
	if err != nil {
		return err
	}
	claimed, _, _ := ownersIn(all)
	owned[first] = claimed[first].Difference(owned[us])
	return nil
}

// adopts reports whether Heirloom takes over a correct field from the create.
func (j judgement) adopts(c, want cell) bool {
	return j.plan.Adopts() && (j.lost || j.create.Has(c.path)) && (!want.yields || !j.later.Has(c.path))
}

// cell judges one entry.
func (j judgement) cell(id string) error {
	old, there := j.had[id]
	want, declared := j.desired[id]
	c := old
	if !there {
		c = want
	}
	adopted := declared && there && maps.Equal(old.leaves, want.leaves) && j.adopts(c, want)
	result := outcomeOf(c, old, want, there, declared, adopted, j.owned)
	if got := j.has[id].leaves; !maps.Equal(got, result.leaves) {
		return fmt.Errorf("%s is %v, not %v\n%s", id, got, result.leaves, fieldsText(j.before))
	}
	return j.ownersOf(id, c, old, result, adopted)
}

// ownersOf judges the owners of one entry.
func (j judgement) ownersOf(id string, c, old cell, result wanted, adopted bool) error {
	for name := range merged(result.ours, old.leaves) {
		if _, ours := result.ours[name]; j.owns[us].Has(c.leaf(name)) != ours {
			return fmt.Errorf("%s %s is ours: %v, but should be: %v; before\n%safter\n%s", id, name, !ours, ours, fieldsText(j.before), fieldsText(j.after))
		}
	}
	if err := othersKeep(id, c, old, result, j.owned, j.owns, adopted); err != nil {
		return fmt.Errorf("%w; before\n%safter\n%s", err, fieldsText(j.before), fieldsText(j.after))
	}
	return nil
}

// expected returns the content that the object should inherit, and the entries that an orphan keeps.
func (w *world) expected(had map[string]cell, owned owners) map[string]cell {
	declared := w.desired.Desired
	declared.Layout = layoutOf(w.kind)
	desired := cellsOf(declared)
	capacity := func(c cell) bool {
		return slices.ContainsFunc(inherit.CapacityAnnotations, func(name string) bool { return strings.HasSuffix(c.path.String(), name) })
	}
	var brought bool
	for _, c := range had {
		declarable := c.taint && w.kind == "Machine" || capacity(c) // without any owner
		brought = brought || owned[us].Has(c.path) && !declarable
	}
	for id, c := range had {
		_, declared := desired[id]
		if w.desired.Outcome == inherit.NoOwner && brought && !declared && owned[us].Has(c.path) && !capacity(c) && (!c.taint || !w.desired.TaintsRefused) {
			desired[id] = c
		}
	}
	return desired
}

func outcomeOf(c, old, want cell, there, declared, adopted bool, owned owners) wanted {
	yields := want.yields && owned.others(c.path)
	ours := adopted || owned[us].Has(c.path) && !yields
	switch {
	case !there:
		return wanted{want.leaves, want.leaves}
	case !declared && ours && !owned.others(c.path):
		return wanted{}
	case !declared, want.byDefault && !ours:
		return wanted{leaves: old.leaves}
	}
	leaves := overlaid(c, old, want, owned)
	if ours || !maps.Equal(leaves, old.leaves) {
		return wanted{leaves, want.leaves}
	}
	return wanted{leaves: leaves}
}

// overlaid returns the wanted values, and the old values that Heirloom does not own alone.
func overlaid(c, old, want cell, owned owners) map[string]string {
	leaves := maps.Clone(want.leaves)
	for name, value := range old.leaves {
		stale := name != "" && owned[us].Has(c.leaf(name)) && !owned.others(c.leaf(name))
		if _, names := leaves[name]; !names && !stale {
			leaves[name] = value
		}
	}
	return leaves
}

// othersKeep checks that other managers still own their fields, apart from changed and removed values.
func othersKeep(id string, c, old cell, result wanted, owned, owns owners, adopted bool) error {
	for manager := range merged(owned, owns) {
		if manager == us || adopted && strings.HasSuffix(manager, "/Update") {
			continue
		}
		for name := range merged(result.leaves, old.leaves) {
			now, stays := result.leaves[name]
			keeps := owned[manager] != nil && owned[manager].Has(c.leaf(name)) && stays && now == old.leaves[name]
			if (owns[manager] != nil && owns[manager].Has(c.leaf(name))) != keeps {
				return fmt.Errorf("%s owns %s %s: %v, but should: %v", manager, id, name, !keeps, keeps)
			}
		}
	}
	return nil
}

func merged[V any](a, b map[string]V) map[string]V {
	all := map[string]V{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// elsewhere checks that the write changed only the places that inherit.
func (w *world) elsewhere(before, after *unstructured.Unstructured) error {
	layout := layoutOf(w.kind)
	bare := func(object *unstructured.Unstructured) map[string]any {
		object = object.DeepCopy()
		put(object, inherit.Object{Template: &inherit.Content{}})
		for _, field := range []string{"managedFields", "resourceVersion", "creationTimestamp"} {
			unstructured.RemoveNestedField(object.Object, "metadata", field)
		}
		return withoutEmpty(object.Object)
	}
	if had, has := bare(before), bare(after); !reflect.DeepEqual(had, has) {
		return fmt.Errorf("the rest of the object was\n%v\nand is\n%v", had, has)
	}
	places, above := fieldpath.NewSet(), fieldpath.NewSet()
	for _, at := range []inherit.Paths{layout.Top, layout.Template} {
		for _, path := range append([][]string{
			slices.Concat(at.Metadata, []string{"labels"}), slices.Concat(at.Metadata, []string{"annotations"}), at.Taints,
		}, at.Fields[:]...) {
			places.Insert(pathTo(path))
			for i := range path {
				above.Insert(pathTo(path[:i]))
			}
		}
	}
	rest := func(set *fieldpath.Set) string {
		if set == nil {
			set = fieldpath.NewSet()
		}
		return set.RecursiveDifference(places).Difference(above).String()
	}
	owned, _, _ := ownersIn(before)
	owns, _, _ := ownersIn(after)
	if err := w.handOver(before, owned, owns); err != nil {
		return err
	}
	for manager := range merged(owned, owns) {
		if had, has := rest(owned[manager]), rest(owns[manager]); had != has {
			return fmt.Errorf("%s owned %s of the rest, and owns %s", manager, had, has)
		}
	}
	return nil
}

// unchanged checks that two versions of an object are equal, apart from times and the order of managed fields.
func (w *world) unchanged(before, after *unstructured.Unstructured) error {
	had, has := cellsOf(contentOf(before)), cellsOf(contentOf(after))
	for id := range merged(had, has) {
		if !maps.Equal(had[id].leaves, has[id].leaves) {
			return fmt.Errorf("another apply makes %s %v of %v", id, has[id].leaves, had[id].leaves)
		}
	}
	owned, _, _ := ownersIn(before)
	owns, _, _ := ownersIn(after)
	for manager := range merged(owned, owns) {
		if owned[manager] == nil || owns[manager] == nil || !owned[manager].Equals(owns[manager]) {
			return fmt.Errorf("another apply lets %s own %s of\n%s", manager, owns[manager], owned[manager])
		}
	}
	return w.elsewhere(before, after)
}
