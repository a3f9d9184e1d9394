// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// wanted is what is to become of a cell: its values, none if it goes, and which of them are ours.
type wanted struct{ leaves, ours map[string]string }

// judgement is a write with what is known of the object before and after it.
type judgement struct {
	*world
	before, after *unstructured.Unstructured
	plan          *managedfields.Plan
	had, has      map[string]cell
	desired       map[string]cell
	owned, owns   owners
	create, later *fieldpath.Set
	// lost says that there were no managed fields, same that they are all of the object's version.
	lost, same bool
}

// judge holds that a write has come to what docs/design.md §2 says, for every entry and every manager, and to nothing else.
func (w *world) judge(before, after *unstructured.Unstructured, plan *managedfields.Plan) error {
	j, err := w.judgement(before, after, plan)
	if err != nil {
		return err
	}
	return j.hold()
}

// judgeRemoval judges what the loop has removed, where that has made a copy of the object which is to be adopted before anything is
// added. If no managed fields are left, that need not be all: taints by annotation and what yields do not keep it from being a copy.
func (w *world) judgeRemoval(before, after *unstructured.Unstructured, plan *managedfields.Plan) error {
	j, err := w.judgement(before, after, plan)
	if err != nil {
		return err
	}
	maps.DeleteFunc(j.desired, func(id string, want cell) bool {
		_, there := j.had[id]
		return len(after.GetManagedFields()) == 0 && want.byDefault && !there
	})
	return j.hold()
}

func (w *world) judgement(before, after *unstructured.Unstructured, plan *managedfields.Plan) (judgement, error) {
	layout := layoutOf(w.kind)
	j := judgement{world: w, before: before, after: after, plan: plan, lost: len(before.GetManagedFields()) == 0}
	j.had, j.has = cellsOf(layout, contentOf(before)), cellsOf(layout, contentOf(after))
	j.owned, j.create, j.later, j.same = ownersIn(before)
	j.owns, _, _, _ = ownersIn(after)
	j.desired = w.expected(layout, j.had, j.owned)
	return j, w.handOver(before, j.owned, j.owns)
}

func (j judgement) hold() error {
	for _, id := range slices.Sorted(maps.Keys(merged(j.had, j.desired))) {
		if err := j.cell(id); err != nil {
			return err
		}
	}
	if j.same {
		return j.elsewhere(j.before, j.after)
	}
	return nil
}

// handOver lets before-first-apply own what nobody else does, if that is what the API server has made of an apply. The field manager
// gives it all of an object that has no managed fields. Such an object may have had some of ours, if it had no others and all of them
// have been given up: the loop removes first, and the field manager drops an entry that has become empty. Nothing that the loop
// could write prevents that. What a patch adds would be ours as Update too, and an apply that gives up takes unowned fields with it.
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
	claimed, _, _, _ := ownersIn(all)
	owned[first] = claimed[first].Difference(owned[us])
	return nil
}

// adopts reports whether a field that is as it should be is taken from the create.
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
	if c.scalar && !j.same {
		if declared && !maps.Equal(j.has[id].leaves, want.leaves) {
			return fmt.Errorf("%s is %v, not %v\n%s", id, j.has[id].leaves, want.leaves, fieldsText(j.before))
		}
		return nil
	}
	adopted := declared && there && maps.Equal(old.leaves, want.leaves) && j.adopts(c, want)
	result := outcomeOf(c, old, want, there, declared, adopted, j.owned)
	if got := j.has[id].leaves; !maps.Equal(got, result.leaves) {
		return fmt.Errorf("%s is %v, not %v\n%s", id, got, result.leaves, fieldsText(j.before))
	}
	if !j.same {
		return nil
	}
	return j.ownersOf(id, c, old, result, adopted)
}

// ownersOf judges who owns one entry.
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

// expected is what the object should inherit, with what stays in an orphan.
func (w *world) expected(layout inherit.Layout, had map[string]cell, owned owners) map[string]cell {
	desired := cellsOf(layout, w.desired.Desired)
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

// overlaid is what is wanted, with what was there and is not ours alone.
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

// othersKeep holds that other managers own what they owned, apart from what has another value now or is gone.
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

// elsewhere holds that nothing has changed but the places that inherit.
func (w *world) elsewhere(before, after *unstructured.Unstructured) error {
	layout := layoutOf(w.kind)
	bare := func(object *unstructured.Unstructured) map[string]any {
		object = object.DeepCopy()
		put(object, layout, inherit.Object{Template: &inherit.Content{}})
		for _, field := range []string{"managedFields", "resourceVersion", "creationTimestamp", "annotations"} {
			unstructured.RemoveNestedField(object.Object, "metadata", field)
		}
		return withoutEmpty(object.Object)
	}
	if had, has := bare(before), bare(after); !reflect.DeepEqual(had, has) {
		return fmt.Errorf("the rest of the object was\n%v\nand is\n%v", had, has)
	}
	var places []fieldpath.Path
	for _, at := range []inherit.Paths{layout.Top, layout.Template} {
		for _, path := range append([][]string{
			slices.Concat(at.Metadata, []string{"labels"}), slices.Concat(at.Metadata, []string{"annotations"}), at.Taints,
		}, at.Fields[:]...) {
			var place fieldpath.Path
			for _, name := range path {
				place = append(place, fieldpath.PathElement{FieldName: &name})
			}
			places = append(places, place)
		}
	}
	rest := func(set *fieldpath.Set) string {
		left := fieldpath.NewSet()
		if set != nil {
			set.Iterate(func(path fieldpath.Path) {
				if !slices.ContainsFunc(places, func(place fieldpath.Path) bool {
					shorter := min(len(place), len(path))
					return place[:shorter].Equals(path[:shorter])
				}) {
					left.Insert(path.Copy())
				}
			})
		}
		return left.String()
	}
	owned, _, _, _ := ownersIn(before)
	owns, _, _, _ := ownersIn(after)
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

func withoutEmpty(m map[string]any) map[string]any {
	dropNothing(m)
	return m
}

// unchanged holds that two versions of an object are the same, whenever and in whatever order it was recorded.
func (w *world) unchanged(before, after *unstructured.Unstructured) error {
	layout := layoutOf(w.kind)
	had, has := cellsOf(layout, contentOf(before)), cellsOf(layout, contentOf(after))
	for id := range merged(had, has) {
		if !maps.Equal(had[id].leaves, has[id].leaves) {
			return fmt.Errorf("another apply makes %s %v of %v", id, has[id].leaves, had[id].leaves)
		}
	}
	owned, _, _, same := ownersIn(before)
	owns, _, _, _ := ownersIn(after)
	if !same {
		return nil
	}
	for manager := range merged(owned, owns) {
		if owned[manager] == nil || owns[manager] == nil || !owned[manager].Equals(owns[manager]) {
			return fmt.Errorf("another apply lets %s own %s of\n%s", manager, owns[manager], owned[manager])
		}
	}
	return w.elsewhere(before, after)
}
