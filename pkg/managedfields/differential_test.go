// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	upstream "k8s.io/apimachinery/pkg/util/managedfields"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// TestAgainstFieldManager tells hundreds of stories of an object, and holds after each of thousands of writes, by the webhook and by the loop,
// that the field manager of API servers has made of it what the plan announces, and what docs/design.md §2 says. HEIRLOOM_SEED
// chooses other stories, HEIRLOOM_STORIES how many.
func TestAgainstFieldManager(t *testing.T) {
	managers, err := fieldManagersOnce()
	if err != nil {
		t.Fatal(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // little lives longer than a story
	seed, stories := fromEnv(t, "HEIRLOOM_SEED", 6), fromEnv(t, "HEIRLOOM_STORIES", 250)
	for i := range uint64(stories) {
		told := dice{Rand: rand.New(rand.NewPCG(uint64(seed), i))}.story()
		if tell(managers, told) == nil {
			continue
		}
		told = told.shrunk(func(s story) bool { return tell(managers, s) != nil })
		t.Fatalf("story %d of seed %d: %s\n%v", i, seed, told, tell(managers, told))
	}
}

func fromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	number, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return number
}

// world is the object of a story, as it is stored, and what its owner declares.
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
	w.live = w.empty("v1beta2")
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

func (w *world) empty(version string) *unstructured.Unstructured {
	empty := &unstructured.Unstructured{}
	empty.SetAPIVersion(clusterv1.GroupVersion.Group + "/" + version)
	empty.SetKind(w.kind)
	return empty
}

func (w *world) exists() bool { return w.live.GetUID() != "" }

// take does what a step says.
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
	before, err := in(s.version, w.live)
	if err != nil {
		return err
	}
	request, err := w.request(s, before)
	if err != nil || request == nil {
		return err
	}
	w.date(request)
	if s.admitted {
		if request, err = w.admit(before, request); err != nil {
			return err
		}
	}
	return w.store(request)
}

// request is the object as admission gets it: the field manager has recorded the write in it already.
func (w *world) request(s step, before *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	layout := layoutOf(w.kind, s.version)
	if s.does == applies || s.does == forces {
		config := w.empty(s.version)
		config.SetName("x")
		if !w.exists() {
			identify(config)
		}
		put(config, layout, s.has.Object)
		result, err := w.managers.applied(before, config, s.by, s.does == forces)
		if err != nil {
			return nil, nil //nolint:nilerr,nilnil // a conflict: nothing is written
		}
		return result, nil
	}
	object := before.DeepCopy()
	switch {
	case s.does == restores:
		before = w.empty(s.version)
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
		put(object, layout, after)
	}
	return w.managers.updated(before, object, s.by)
}

// date gives what has just been recorded the time of the story.
func (w *world) date(object *unstructured.Unstructured) {
	entries := object.GetManagedFields()
	for i := range entries {
		if entries[i].Time != nil && entries[i].Time.Year() != w.clock.Year() {
			entries[i].Time = &metav1.Time{Time: w.clock}
		}
	}
	object.SetManagedFields(entries)
}

func (w *world) store(object *unstructured.Unstructured) error {
	w.date(object)
	if created := object.GetCreationTimestamp(); created.IsZero() {
		object.SetCreationTimestamp(metav1.Time{Time: w.clock})
	}
	object.SetUID("uid")
	object.SetResourceVersion(w.clock.String())
	var err error
	w.live, err = in("v1beta2", object)
	return err
}

// admit is what the webhook makes of a request, which it gets in v1beta2 (matchPolicy: Equivalent). The API server stores that as it
// is, if its managed fields can be read: see managedFieldsValidatingAdmissionController in k8s.io/apiserver.
func (w *world) admit(before, request *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	version := request.GroupVersionKind().Version
	before, err := in("v1beta2", before)
	if err != nil {
		return nil, err
	}
	if request, err = in("v1beta2", request); err != nil {
		return nil, err
	}
	current := contentOf(request)
	plan, err := managedfields.New(request, current, w.desired, func() (inherit.Object, error) { return contentOf(before), nil })
	if created := request.GetCreationTimestamp(); created.IsZero() {
		plan, err = managedfields.New(request, current, w.desired, nil)
	}
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
	if err := w.judge(request, result, plan); err != nil {
		return nil, fmt.Errorf("the webhook: %w", err)
	}
	if err := w.settled(result); err != nil {
		return nil, err
	}
	return in(version, result)
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

// settled holds that there is nothing left to do, and that another apply of ours would change nothing.
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
		// Only what has just been added, or has gone, made a copy of it.
		adopted, err := w.patched(plan, object)
		if err != nil {
			return err
		}
		if err := w.judge(object, adopted, plan); err != nil {
			return fmt.Errorf("adopted: %w", err)
		}
		return w.settled(adopted)
	}
	if plan.Needed() {
		return fmt.Errorf("once is not enough: %v, adopts: %v, gives up: %v\n%s", plan.Changes(), plan.Adopts(), plan.GivesUp(), fieldsText(object))
	}
	if len(object.GetManagedFields()) == 0 {
		return nil // an apply would give all of it to somebody
	}
	config, err := plan.ApplyConfiguration(object.GetAPIVersion(), w.kind, object)
	if err != nil {
		return err
	}
	result, err := w.managers.applied(object, config, managedfields.Manager, false)
	if err != nil {
		return fmt.Errorf("another apply: %w", err)
	}
	return w.unchanged(object, result)
}

// announced returns the plan for an object, once what it announces has been judged.
func (w *world) announced(before *unstructured.Unstructured) (*managedfields.Plan, error) {
	plan, err := managedfields.New(before, contentOf(before), w.desired, nil)
	if err != nil {
		return nil, err
	}
	after, err := w.patched(plan, before)
	if err != nil {
		return nil, err
	}
	if err := w.judge(before, after, plan); err != nil {
		return nil, fmt.Errorf("announced: %w", err)
	}
	return plan, nil
}

// layoutOf is where an object has everything in a version of the API. Users may still write v1beta1.
func layoutOf(kind, version string) inherit.Layout {
	layout, at := inherit.MachineLayout, &inherit.Paths{}
	spec, minReady := []string{"spec"}, []string(nil)
	if at = &layout.Top; kind != "Machine" {
		layout = inherit.WorkersLayout
		at, spec, minReady = &layout.Template, []string{"spec", "template", "spec"}, []string{"spec", "minReadySeconds"}
	}
	if version == "v1beta1" {
		at.Durations = true
		for f, name := range []string{"nodeDrainTimeout", "nodeVolumeDetachTimeout", "nodeDeletionTimeout"} {
			at.Fields[f] = slices.Concat(spec, []string{name})
		}
		at.Fields[inherit.MinReadySeconds] = minReady
	}
	return layout
}
