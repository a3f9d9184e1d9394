// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
	"github.com/heirloom-dev/heirloom/pkg/ownership"
)

// planned is the decision about a child and the write that carries it out; nil if nothing changes.
type planned struct {
	ownerchain.Decision
	*ownership.Plan
	current inherit.Object
	// wait is how long that write is left to Cluster API, and why what is written then. It is found out once: if it were over between the
	// question whether owners are to be read anew and the write, what is written would come from the cache alone.
	wait time.Duration
	why  metrics.WriteReason
}

// applyTo writes what a child inherits, if that is missing, and returns when to look again if it leaves that to Cluster API for now. The
// object is the child as it is stored, which may be another type.
func applyTo[P metav1.Object](
	ctx context.Context, d Dependencies, kind ownerchain.Kind[P], child P, object client.Object,
) (again time.Duration, err error) {
	inDoubt := func(p planned) bool {
		return p.Plan != nil && p.Needed() && p.wait == 0 && p.Behind(object)
	}
	p, err := ownerchain.Recheck(ctx, d.Chain, d.fresh, inDoubt, func(ctx context.Context, chain *ownerchain.Chain) (p planned, err error) {
		if p.Decision, err = kind.Evaluate(ctx, chain, child, d.Policy()); err != nil || p.Untouched() {
			return p, err
		}
		if p.current, err = kind.Content(ctx, d.Schemas, child); err != nil {
			return p, err
		}
		if p.Plan, err = ownership.New(object, p.current, p.Decision.Decision, nil); err == nil && p.Needed() {
			p.wait, p.why = d.deferral.wait(p.Propagation())
		}
		return p, err
	})
	if err != nil {
		return 0, err
	}
	if p.Untouched() {
		ctrl.LoggerFrom(ctx).V(2).Info("The object inherits nothing for now", "reason", p.Reason)
		return 0, nil
	}
	if problems := errors.Join(p.Problems, p.LeftOut()); problems != nil {
		d.leftOut(object, p.Sources(ctx).Located(problems))
	}
	if !p.Needed() {
		d.deferral.upToDate(p.Propagation())
		return 0, nil
	}
	if p.wait > 0 {
		ctrl.LoggerFrom(ctx).V(2).Info("Cluster API is about to write what the object inherits", "wait", p.wait)
		return p.wait, nil
	}
	return 0, d.write(ctx, object, p)
}

// write carries out a plan that changes something.
func (d Dependencies) write(ctx context.Context, object client.Object, p planned) error {
	gvk, err := apiutil.GVKForObject(object, d.Client.Scheme())
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	return d.patience.with(ctx, gvk.GroupKind(), func(ctx context.Context) error {
		if p.Adopts() || p.GivesUp() {
			return d.patch(ctx, object, gvk, p)
		}
		return d.apply(ctx, object, gvk, p)
	})
}

// apply sends what a child should inherit as a server-side apply. It is forced: an owner is authoritative for what it
// declares.
func (d Dependencies) apply(ctx context.Context, object client.Object, gvk schema.GroupVersionKind, p planned) error {
	config, err := p.ApplyConfiguration(gvk.GroupVersion().String(), gvk.Kind, object)
	if err != nil {
		return err
	}
	err = d.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(config),
		client.FieldOwner(ownership.Manager), client.ForceOwnership)
	d.written(object, gvk, p.Plan, p.why, err)
	if err != nil {
		return fmt.Errorf("applying what the %s inherits: %w", gvk.Kind, err)
	}
	ctrl.LoggerFrom(ctx).Info("Applied what the object inherits", "changes", len(p.Changes()))
	return nil
}

// written counts a write and what it changed, and reports a failure on the object.
func (d Dependencies) written(
	object client.Object, gvk schema.GroupVersionKind, plan *ownership.Plan, why metrics.WriteReason, err error,
) {
	kind := metrics.Kind(gvk.Group, gvk.Kind)
	d.Metrics.Write(kind, result(err), why)
	d.failed(object, err)
	if err != nil {
		return
	}
	for _, change := range plan.Changes() {
		became := metrics.KeyInjected
		if change.Value == nil {
			became = metrics.KeyRemoved
		}
		d.Metrics.Key(metrics.ByResync, kind, change.What(), became)
	}
}

func result(err error) metrics.WriteResult {
	switch {
	case err == nil:
		return metrics.Applied
	case apierrors.IsConflict(err):
		return metrics.Conflict
	default:
		return metrics.Error
	}
}

// failed reports on the object that it could not be written. A conflict resolves itself, and a deleted object needs nothing.
func (d Dependencies) failed(object runtime.Object, err error) {
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		d.Recorder.Eventf(object, nil, corev1.EventTypeWarning, reasonInheritanceFailed, "Inherit", "Failed to write what is inherited: %v", err)
	}
}

// leftOut reports on the object what it could not inherit.
func (d Dependencies) leftOut(object runtime.Object, problems error) {
	if problems != nil {
		d.Recorder.Eventf(object, nil, corev1.EventTypeWarning, reasonNotInherited, "Inherit", "%v", problems)
	}
}
