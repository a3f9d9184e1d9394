// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	operations "gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// carryOut returns an object as the plan leaves it: with the operations by which the webhook answers.
func carryOut(plan *managedfields.Plan, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	raw, err := object.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", nameOf(object), err)
	}
	list, err := plan.Patch(raw, object.GetAPIVersion(), time.Now())
	if err != nil {
		return nil, fmt.Errorf("working out the write of %s: %w", nameOf(object), err)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("working out the write of %s: %w", nameOf(object), err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err == nil {
		raw, err = patch.Apply(raw)
	}
	result := &unstructured.Unstructured{}
	if err == nil {
		err = result.UnmarshalJSON(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("carrying out the write of %s: %w", nameOf(object), err)
	}
	return result, nil
}

// inherited are the changes of a plan, with where each is declared.
func inherited(plan *managedfields.Plan, sources inherit.Sources) []Change {
	var all []Change
	for _, change := range plan.Changes() {
		one := Change{Place: change.Place, Key: change.Name, Value: change.Value, Removed: change.Value == nil}
		if !one.Removed { // nobody declares what goes
			one.Source = sources.Of(change.Entry).String()
		}
		all = append(all, one)
	}
	return all
}

// difference returns what changes between two states of an object, as people see them.
func difference(from, to *unstructured.Unstructured) ([]operations.Operation, error) {
	before, err := json.Marshal(shown(from))
	if err != nil {
		return nil, fmt.Errorf("comparing %s: %w", nameOf(to), err)
	}
	after, err := json.Marshal(shown(to))
	if err != nil {
		return nil, fmt.Errorf("comparing %s: %w", nameOf(to), err)
	}
	list, err := operations.CreatePatch(before, after)
	if err != nil {
		return nil, fmt.Errorf("comparing %s: %w", nameOf(to), err)
	}
	slices.SortStableFunc(list, func(a, b operations.Operation) int { return cmp.Compare(a.Path, b.Path) }) // a map has any order
	return list, nil
}

// changedByFiles lists what the files change in an object.
func changedByFiles(o *Object) ([]Change, error) {
	if o.New {
		return []Change{{Place: "", Value: "created", Source: fromFiles}}, nil
	}
	list, err := difference(o.Live, o.Merged)
	if err != nil {
		return nil, err
	}
	var all []Change
	for _, one := range list {
		change := Change{Place: dotted(one.Path), Value: one.Value, Removed: one.Operation == "remove", Source: fromFiles}
		all = append(all, change)
	}
	return all, nil
}

// dotted is a JSON pointer as people read it.
func dotted(pointer string) string {
	return strings.NewReplacer("/", ".", "~1", "/", "~0", "~").Replace(strings.TrimPrefix(pointer, "/"))
}

// shown is an object without what changes in every write. An object that does not exist shows nothing.
func shown(object *unstructured.Unstructured) map[string]any {
	if object == nil {
		return map[string]any{}
	}
	result := object.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(result.Object, "metadata", field)
	}
	if _, found, _ := unstructured.NestedString(result.Object, "metadata", "creationTimestamp"); !found {
		unstructured.RemoveNestedField(result.Object, "metadata", "creationTimestamp")
	}
	return result.Object
}
