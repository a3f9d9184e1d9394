// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// loop does what the loop does until nothing is left to do.
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
			if err := w.judge(before, w.live, first); err != nil {
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
		if next.Adopts() && !first.Adopts() { // what has gone made a copy of it
			if err := w.judgeRemoval(before, result, first); err != nil {
				return err
			}
			before, first = result, next
		}
		if admitted {
			if result, err = w.admit(w.live, result); err != nil {
				return err
			}
		}
		if err := w.store(result); err != nil {
			return err
		}
	}
	return errors.New("it comes to no end")
}

// plan is computed from as much of the object as the cache has, which must be enough.
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

// write is what the API server makes of a write of the loop, before admission.
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
