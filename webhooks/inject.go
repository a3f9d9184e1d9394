// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
	"github.com/heirloom-dev/heirloom/pkg/ownership"
)

// child is an object of Cluster API that inherits, and what is known about it.
type child struct {
	object  metav1.Object
	current inherit.Object
	decided ownerchain.Decision
	// old returns what the child had before an update, and an error if the request is a create.
	old func() (inherit.Object, error)
	// prepared are the plans for objects like this one.
	prepared prepared
}

// plan returns the write that gives the child what it inherits.
func (c child) plan(apiVersion, kind string) (*ownership.Plan, error) {
	if ready := c.prepared.of(c, apiVersion, kind); ready != nil {
		if plan := ready.Plan(c.object, c.current); plan != nil {
			return plan, nil
		}
	}
	return ownership.New(c.object, c.current, c.decided.Decision, c.old)
}

// inject answers with the write that gives the child what it inherits and records that as ours.
func inject(ctx context.Context, req admission.Request, c child) (answer, error) {
	apiVersion := schema.GroupVersion{Group: req.Kind.Group, Version: req.Kind.Version}.String()
	plan, err := c.plan(apiVersion, req.Kind.Kind)
	if err != nil {
		return answer{}, err
	}
	patch, err := plan.Patch(req.Object.Raw, apiVersion, time.Now())
	if err != nil {
		return answer{}, err
	}
	decided := answer{outcome: metrics.Unchanged}
	if len(patch) > 0 {
		decided = answer{outcome: metrics.Injected, patch: patch}
		decided.count(plan.Changes())
		decided.warnings = c.warnings(ctx, req, plan, &decided)
	}
	if leftOut := errors.Join(c.decided.Problems, plan.LeftOut()); leftOut != nil {
		decided.warn(c.decided.Sources(ctx).Located(leftOut))
	}
	return decided, nil
}

// warnings names what the child keeps against the request, and where that can be changed.
func (c child) warnings(ctx context.Context, req admission.Request, plan *ownership.Plan, decided *answer) []string {
	kept := c.kept(req, plan)
	if len(kept) == 0 {
		return nil
	}
	for _, change := range kept {
		decided.kept = append(decided.kept, change.What())
	}
	sources := c.decided.Sources(ctx)
	return warnings(kept, func(change ownership.Change) string {
		return fmt.Sprintf("heirloom: %s of %s %s/%s was kept: it is inherited; to change it, edit %s",
			change, req.Kind.Kind, c.object.GetNamespace(), c.object.GetName(), sources.Of(change.Entry()))
	})
}

// count counts the changes for the metrics.
func (a *answer) count(changes []ownership.Change) {
	a.brought = make([]string, 0, len(changes))
	for _, change := range changes {
		if change.Value == nil {
			a.removed = append(a.removed, change.What())
			continue
		}
		a.brought = append(a.brought, change.What())
	}
}

// kept returns what the child inherits and the request tried to remove. The warning says where to change it instead. Without the
// old object this is not known, but the answer is right all the same.
func (c child) kept(req admission.Request, plan *ownership.Plan) []ownership.Change {
	if req.Operation != admissionv1.Update {
		return nil
	}
	old, err := c.old()
	if err != nil {
		return nil
	}
	carried := ownership.Carried(old)
	return slices.DeleteFunc(slices.Clone(plan.Changes()), func(change ownership.Change) bool {
		return change.Value == nil || !carried(change)
	})
}
