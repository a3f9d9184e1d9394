// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4" // API servers apply admission responses with this package
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	upstream "k8s.io/apimachinery/pkg/util/managedfields"
	"pgregory.net/rapid"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// TestMain draws a seed for each run, and prints it. A failure prints how to repeat it.
func TestMain(m *testing.M) {
	_ = flag.Set("rapid.seed", strconv.FormatInt(time.Now().UnixNano(), 10))
	_ = flag.Set("rapid.checks", "300")
	flag.Parse()
	_ = flag.Set("test.short", "false") // with -short, rapid tries a fifth
	fmt.Println("-rapid.seed=" + flag.Lookup("rapid.seed").Value.String())
	m.Run()
}

// TestAgainstFieldManager plays hundreds of stories. After each of thousands of writes by the webhook and the loop, it checks that the field
// manager of API servers has produced the announced result, and the result that docs/design.md §2 states.
func TestAgainstFieldManager(t *testing.T) {
	managers, err := fieldManagersOnce()
	if err != nil {
		t.Fatal(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // few objects outlive a story
	rapid.Check(t, func(t *rapid.T) {
		told := stories.Draw(t, "story")
		if err := tell(managers, told); err != nil {
			t.Fatalf("%s\n%v", told, err)
		}
	})
}

// world holds the stored object of a story, and the declarations of its owner.
type world struct {
	managers fieldManagers
	kind     string
	live     *unstructured.Unstructured
	desired  inherit.Decision
	clock    time.Time
}

func tell(managers fieldManagers, s story) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("%v\n%s", panicked, debug.Stack())
		}
	}()
	w := &world{managers: managers, kind: s.kind, desired: fromOwner(inherit.Object{}), clock: time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC)}
	w.live = w.empty()
	for i, step := range s.steps {
		if err := w.take(step); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		if step.looped || i == len(s.steps)-1 {
			if err := w.loop(step.admitted); err != nil {
				return fmt.Errorf("the loop after step %d: %w", i+1, err)
			}
		}
	}
	return nil
}

func (w *world) empty() *unstructured.Unstructured {
	empty := &unstructured.Unstructured{}
	empty.SetAPIVersion(version)
	empty.SetKind(w.kind)
	return empty
}

func (w *world) exists() bool { return w.live.GetUID() != "" }

// take performs a step.
func (w *world) take(s step) error {
	w.clock = w.clock.Add(time.Hour)
	switch s.does {
	case declares:
		w.desired = s.has.decision()
		return nil
	case forgets:
		w.live.SetManagedFields(nil)
		return nil
	case restores:
		if !w.exists() {
			return nil
		}
	}
	request, err := w.request(s)
	if err != nil || request == nil {
		return err
	}
	w.date(request)
	if s.admitted {
		if request, err = w.admit(request); err != nil {
			return err
		}
	}
	w.store(request)
	return nil
}

// request returns the object of an admission request: the field manager has recorded the write already.
func (w *world) request(s step) (*unstructured.Unstructured, error) {
	if s.does == applies || s.does == forces {
		config := w.empty()
		identify(config)
		put(config, s.has.Object)
		result, err := w.managers.applied(w.live, config, s.by, s.does == forces)
		if err != nil {
			return nil, nil //nolint:nilerr,nilnil // a conflict: nothing is written
		}
		return result, nil
	}
	before, object := w.live, w.live.DeepCopy()
	switch {
	case s.does == restores:
		before = w.empty()
		object.SetManagedFields(nil)
		object.SetCreationTimestamp(metav1.Time{})
	case !w.exists():
		identify(object)
		fallthrough
	default:
		current := contentOf(object)
		after := inherit.Object{Top: s.after(current.Top, s.has.Top)}
		if s.has.Template != nil && current.Template != nil {
			template := s.after(*current.Template, *s.has.Template)
			after.Template = &template
		}
		put(object, after)
	}
	return w.managers.updated(before, object, s.by)
}

// date sets the time of the story in new entries.
func (w *world) date(object *unstructured.Unstructured) {
	entries := object.GetManagedFields()
	for i := range entries {
		if entries[i].Time != nil && entries[i].Time.Year() != w.clock.Year() {
			entries[i].Time = &metav1.Time{Time: w.clock}
		}
	}
	object.SetManagedFields(entries)
}

func (w *world) store(object *unstructured.Unstructured) {
	w.date(object)
	if created := object.GetCreationTimestamp(); created.IsZero() {
		object.SetCreationTimestamp(metav1.Time{Time: w.clock})
	}
	object.SetUID("uid")
	object.SetResourceVersion(w.clock.String())
	w.live = object
}

// admit reviews a request like the webhook. The API server stores the result unchanged if it can read its managed fields: see
// managedFieldsValidatingAdmissionController in k8s.io/apiserver.
func (w *world) admit(request *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	var old func() (inherit.Object, error)
	if created := request.GetCreationTimestamp(); !created.IsZero() {
		old = func() (inherit.Object, error) { return contentOf(w.live), nil }
	}
	plan, err := managedfields.New(request, contentOf(request), w.desired, old)
	if err != nil {
		return nil, err
	}
	result, err := w.patched(plan, request)
	if err != nil {
		return nil, err
	}
	if err := upstream.ValidateManagedFields(result.GetManagedFields()); err != nil {
		return nil, fmt.Errorf("the API server refuses the answer: %w", err)
	}
	if err := w.judge(request, result, plan, false); err != nil {
		return nil, fmt.Errorf("the webhook: %w", err)
	}
	return result, w.settled(result)
}

func (w *world) patched(plan *managedfields.Plan, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(object.Object)
	if err != nil {
		return nil, err
	}
	operations, err := plan.Patch(raw, object.GetAPIVersion(), w.clock)
	if err != nil || len(operations) == 0 {
		return object.DeepCopy(), err
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	if raw, err = decoded.Apply(raw); err != nil {
		return nil, fmt.Errorf("applying %s: %w", patch, err)
	}
	result := &unstructured.Unstructured{}
	return result, result.UnmarshalJSON(raw)
}

// settled checks that no change is left to do, and that another apply by Heirloom would change nothing.
func (w *world) settled(object *unstructured.Unstructured) error {
	object = object.DeepCopy()
	if created := object.GetCreationTimestamp(); created.IsZero() {
		object.SetCreationTimestamp(metav1.Time{Time: w.clock})
	}
	plan, err := managedfields.New(object, contentOf(object), w.desired, nil)
	if err != nil {
		return err
	}
	if plan.Adopts() && len(plan.Changes()) == 0 {
		// The last addition or removal made the object a copy of its owner's declarations.
		adopted, err := w.patched(plan, object)
		if err != nil {
			return err
		}
		if err := w.judge(object, adopted, plan, false); err != nil {
			return fmt.Errorf("adopted: %w", err)
		}
		return w.settled(adopted)
	}
	if plan.Needed() {
		return fmt.Errorf("once is not enough: %v, adopts: %v, gives up: %v\n%s", plan.Changes(), plan.Adopts(), plan.GivesUp(), fieldsText(object))
	}
	if len(object.GetManagedFields()) == 0 {
		return nil // an apply would assign all fields to a manager
	}
	config, err := plan.ApplyConfiguration(object.GetAPIVersion(), w.kind, object)
	if err != nil {
		return err
	}
	result, err := w.managers.applied(object, config, managedfields.Manager, false)
	if err != nil {
		return fmt.Errorf("another apply: %w", err)
	}
	if had, has := recorded(object), recorded(result); !slices.Equal(had, has) { // the next write would store a new version
		return fmt.Errorf("the API server sorts managed fields as %v, not %v", has, had)
	}
	return w.unchanged(object, result)
}

// recorded returns the managers of an object in the order of its managed fields.
func recorded(object *unstructured.Unstructured) (all []string) {
	for _, entry := range object.GetManagedFields() {
		all = append(all, entry.Manager+"/"+string(entry.Operation))
	}
	return all
}

// announced returns the plan for an object after judging the announced result.
func (w *world) announced(before *unstructured.Unstructured) (*managedfields.Plan, error) {
	plan, err := managedfields.New(before, contentOf(before), w.desired, nil)
	if err != nil {
		return nil, err
	}
	after, err := w.patched(plan, before)
	if err != nil {
		return nil, err
	}
	if err := w.judge(before, after, plan, false); err != nil {
		return nil, fmt.Errorf("announced: %w", err)
	}
	return plan, nil
}

func layoutOf(kind string) inherit.Layout {
	if kind == "Machine" {
		return inherit.MachineLayout
	}
	return inherit.WorkersLayout
}

// loop runs the resync loop until no change is left to do.
func (w *world) loop(admitted bool) error {
	if !w.exists() {
		return nil
	}
	before := w.live
	first, err := w.announced(before)
	if err != nil {
		return err
	}
	const most = 4
	for range most {
		plan, err := w.plan()
		if err != nil {
			return err
		}
		if !plan.Needed() {
			if err := w.judge(before, w.live, first, false); err != nil {
				return err
			}
			return w.settled(w.live)
		}
		w.clock = w.clock.Add(time.Minute)
		result, err := w.write(plan)
		if err != nil {
			return err
		}
		w.date(result)
		next, err := managedfields.New(result, contentOf(result), w.desired, nil)
		if err != nil {
			return err
		}
		if next.Adopts() && !first.Adopts() { // the removal made the object a copy
			if err := w.judge(before, result, first, true); err != nil {
				return err
			}
			before, first = result, next
		}
		if admitted {
			if result, err = w.admit(result); err != nil {
				return err
			}
		}
		w.store(result)
	}
	return errors.New("it comes to no end")
}

// plan computes a plan from the part of the object that the cache keeps, and checks that this part is enough.
func (w *world) plan() (*managedfields.Plan, error) {
	cached := w.live.DeepCopy()
	cached.SetManagedFields(trimmed(cached.GetManagedFields(), cached.GetCreationTimestamp().Time))
	plan, err := managedfields.New(cached, contentOf(cached), w.desired, nil)
	if err != nil {
		return nil, err
	}
	whole, err := managedfields.New(w.live, contentOf(w.live), w.desired, nil)
	if err != nil {
		return nil, err
	}
	if plan.Needed() != whole.Needed() || (plan.Adopts() || plan.GivesUp()) != (whole.Adopts() || whole.GivesUp()) {
		return nil, fmt.Errorf("what the cache has is not enough: needed %v, adopts %v, gives up %v, but with all %v, %v, %v; from\n%s",
			plan.Needed(), plan.Adopts(), plan.GivesUp(), whole.Needed(), whole.Adopts(), whole.GivesUp(), fieldsText(w.live))
	}
	return plan, nil
}

// write returns the API server's result of a write of the loop, before admission.
func (w *world) write(plan *managedfields.Plan) (*unstructured.Unstructured, error) {
	if !plan.Adopts() && !plan.GivesUp() {
		config, err := plan.ApplyConfiguration(w.live.GetAPIVersion(), w.kind, w.live)
		if err != nil {
			return nil, err
		}
		return w.managers.applied(w.live, config, managedfields.Manager, true)
	}
	removal, err := managedfields.NewRemoval(w.live, contentOf(w.live), w.desired)
	if err != nil {
		return nil, err
	}
	if !removal.Needed() {
		return nil, fmt.Errorf("the loop stands still, though something is to be given up or adopted: %v", plan.Changes())
	}
	patched, err := w.patched(removal, w.live)
	if err != nil {
		return nil, err
	}
	return w.managers.updated(w.live, patched, managedfields.Manager)
}
