// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// children is the webhook of a kind of Cluster API or of a provider, in the table of pkg/owners.
type children struct {
	Dependencies
	kind owners.Kind
}

// asCreated clears fields that an API server sets itself: in a request that creates an object by apply, they have the writer's values.
func asCreated(req admission.Request, object metav1.Object) {
	if req.Operation == admissionv1.Create {
		object.SetCreationTimestamp(metav1.Time{})
		object.SetDeletionTimestamp(nil)
	}
}

// injected is the decision about a child and the write that carries it out.
type injected struct {
	owners.Decision
	// plan is nil if the child stays as it is.
	plan *managedfields.Plan
}

func (h children) decide(ctx context.Context, req admission.Request) (answer, error) {
	if want := clusterv1.GroupVersion; req.Kind.Group == want.Group && req.Kind.Version != want.Version {
		return answer{}, fmt.Errorf("the request has API version %s instead of %s: upgrade Heirloom's webhook configuration", req.Kind.Version, want)
	}
	object := h.kind.New()
	if err := decode(req.Object, object); err != nil {
		return answer{}, err
	}
	asCreated(req, object)
	if _, compared := object.GetAnnotations()[clusterv1.TopologyDryRunAnnotation]; compared && ptr.Deref(req.DryRun, false) {
		return untouched(ctx, inherit.OnlyCompared), nil // an entry in both results of the comparison would hide a change
	}
	var old func() (inherit.Object, error)
	if req.Operation == admissionv1.Update {
		old = sync.OnceValues(func() (inherit.Object, error) {
			object := h.kind.New()
			if err := decode(req.OldObject, object); err != nil {
				return inherit.Object{}, err
			}
			return h.kind.Content(ctx, h.Chain, object)
		})
	}
	// Cluster API may just have removed the entries that an update lacks. A create always lacks entries, and restores none.
	changesUpdate := func(i injected) bool { return req.Operation == admissionv1.Update && i.plan != nil && i.plan.Needed() }
	i, err := owners.Recheck(ctx, h.Chain, changesUpdate, func(ctx context.Context, chain *owners.Chain) (injected, error) {
		return h.inject(ctx, chain, object, old)
	})
	if err != nil {
		return answer{}, err
	}
	if i.plan == nil {
		return untouched(ctx, i.Reason), nil
	}
	decided, err := h.answer(ctx, req, object, i)
	decided.observed = i.Observed
	return decided, err
}

// inject evaluates the child with the data of the chain, and plans the write of its inherited entries.
func (h children) inject(
	ctx context.Context, chain *owners.Chain, object metav1.Object, old func() (inherit.Object, error),
) (i injected, err error) {
	if i.Decision, err = h.kind.Evaluate(ctx, chain, object, h.Policy()); err != nil || i.Untouched() {
		return i, err
	}
	current, err := h.kind.Content(ctx, chain, object)
	if err != nil {
		return i, err
	}
	i.plan, err = managedfields.New(object, current, i.Decision.Decision, old)
	return i, err
}

// answer carries out the plan in a patch, which also records Heirloom as the owner of the added entries.
func (h children) answer(ctx context.Context, req admission.Request, object metav1.Object, i injected) (answer, error) {
	apiVersion := schema.GroupVersion{Group: req.Kind.Group, Version: req.Kind.Version}.String()
	patch, err := i.plan.Patch(req.Object.Raw, apiVersion, time.Now())
	if err != nil {
		return answer{}, err
	}
	decided := answer{outcome: metrics.Unchanged}
	if len(patch) > 0 {
		decided = answer{outcome: metrics.Injected, patch: patch}
		for _, change := range i.plan.Changes() {
			if change.Value == nil {
				decided.removed = append(decided.removed, change.What)
			} else {
				decided.brought = append(decided.brought, change.What)
			}
		}
		h.warnKept(ctx, req, object, i, &decided)
	}
	if leftOut := errors.Join(i.Problems(), i.plan.LeftOut()); leftOut != nil {
		decided.warn(i.Sources(ctx).Located(leftOut))
	}
	return decided, nil
}

// warnKept warns of entries that the child keeps although the request removes or changes them, and names the objects to edit.
func (h children) warnKept(ctx context.Context, req admission.Request, object metav1.Object, i injected, decided *answer) {
	kept := i.plan.Kept()
	if len(kept) == 0 {
		return
	}
	for _, change := range kept {
		decided.kept = append(decided.kept, change.What)
	}
	sources := i.Sources(ctx)
	decided.warnings = warnings(kept, func(change managedfields.Change) string {
		return fmt.Sprintf("heirloom: %s of %s %s/%s was kept: it is inherited; to change it, edit %s",
			change, req.Kind.Kind, object.GetNamespace(), object.GetName(), sources.Of(change.Entry))
	})
}
