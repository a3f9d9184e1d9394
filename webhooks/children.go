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
	// Cluster API may just have removed the entries that an update lacks. A create always lacks entries, and restores none. But its values
	// may be newer than the cache, and a changed copy is no copy.
	inDoubt := func(p owners.Plan) bool {
		return p.Plan != nil && (req.Operation == admissionv1.Update && p.Needed() || p.Overrules())
	}
	p, err := owners.Recheck(ctx, h.Chain, inDoubt, func(ctx context.Context, chain *owners.Chain) (owners.Plan, error) {
		return h.kind.Plan(ctx, chain, object, object, h.Policy(), old)
	})
	if err != nil {
		return answer{}, err
	}
	if p.Plan == nil {
		return untouched(ctx, p.Reason), nil
	}
	decided, err := h.answer(ctx, req, object, p)
	decided.observed = p.Observed
	return decided, err
}

// answer carries out the plan in a patch, which also records Heirloom as the owner of the added entries.
func (h children) answer(ctx context.Context, req admission.Request, object metav1.Object, p owners.Plan) (answer, error) {
	apiVersion := schema.GroupVersion{Group: req.Kind.Group, Version: req.Kind.Version}.String()
	patch, err := p.Patch(req.Object.Raw, apiVersion, time.Now())
	if err != nil {
		return answer{}, err
	}
	decided := answer{outcome: metrics.Unchanged}
	if len(patch) > 0 {
		decided = answer{outcome: metrics.Injected, patch: patch}
		for _, change := range p.Changes() {
			if change.Value == nil {
				decided.removed = append(decided.removed, change.What)
			} else {
				decided.brought = append(decided.brought, change.What)
			}
		}
		h.warnKept(ctx, req, object, p, &decided)
	}
	if leftOut := errors.Join(p.Problems(), p.LeftOut()); leftOut != nil {
		decided.warn(p.Sources(ctx).Located(leftOut))
	}
	return decided, nil
}

// warnKept warns of entries that the child keeps although the request removes or changes them, and names the objects to edit.
func (h children) warnKept(ctx context.Context, req admission.Request, object metav1.Object, p owners.Plan, decided *answer) {
	kept := p.Kept()
	if len(kept) == 0 {
		return
	}
	for _, change := range kept {
		decided.kept = append(decided.kept, change.What)
	}
	sources := p.Sources(ctx)
	decided.warnings = warnings(kept, func(change managedfields.Change) string {
		return fmt.Sprintf("heirloom: %s of %s %s/%s was kept: it is inherited; to change it, edit %s",
			change, req.Kind.Kind, object.GetNamespace(), object.GetName(), sources.Of(change.Entry))
	})
}
