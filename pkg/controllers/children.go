// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/heirloom-dev/heirloom/pkg/cleanup"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// behind is the time until the retry of a write from a cache that has an old version of the object. Usually an event comes first; a watch
// that has stalled must not cost more than a refused write a second.
const behind = time.Second

// children reconciles the objects of a kind of Cluster API.
type children struct {
	*Dependencies
	kind owners.Kind
}

// Reconcile implements reconcile.Reconciler.
func (r children) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	child, root := r.kind.New(), rootOf(r.kind.Resource, req)
	if err := r.Client.Get(ctx, req.NamespacedName, child); err != nil {
		r.pending.forget(root)
		return ctrl.Result{}, gone(err, "object")
	}
	again, err := syncChild(withCluster(ctx, child), r.Dependencies, root, r.kind, child, child, schema.GroupKind{})
	return ctrl.Result{RequeueAfter: again}, err
}

// clusterOf returns the name of the object's Cluster.
func clusterOf(object client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: owners.ClusterName(object)}
}

// withCluster adds the object's Cluster to the logger.
func withCluster(ctx context.Context, object client.Object) context.Context {
	if cluster := clusterOf(object); cluster.Name != "" {
		return ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("Cluster", klog.KRef(cluster.Namespace, cluster.Name)))
	}
	return ctx
}

// gone returns no error for an object that no longer exists, and wraps any other error.
func gone(err error, kind string) error {
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf("getting the %s: %w", kind, err)
}

// planned is the plan for a child.
type planned struct {
	owners.Plan
	// wait is the time for which the write is left to Cluster API.
	wait time.Duration
}

// due reports whether a write is needed now and is not left to Cluster API.
func (p planned) due() bool { return p.Plan.Plan != nil && p.Needed() && p.wait == 0 }

func (p planned) writes() bool { return p.due() && !p.Observed }

// pending reports whether a write would be due, and is only observed.
func (p planned) pending() bool { return p.due() && p.Observed }

// syncChild writes missing inherited entries of a child. again is the time until the next reconcile, if the write is left to Cluster API
// for now or has no slot. object is the child as it is stored, maybe of another Go type. owner is the kind of the child's owner if it is
// a provider's kind; empty if it is a kind of Cluster API. root names the reconcile.
func syncChild(
	ctx context.Context, d *Dependencies, root string, kind owners.Kind, child metav1.Object, object client.Object, owner schema.GroupKind,
) (again time.Duration, err error) {
	gvk, err := apiutil.GVKForObject(object, d.Client.Scheme())
	if err != nil {
		return 0, fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	now, p := time.Now(), planned{}
	plan := func(ctx context.Context, chain *owners.Chain) (p planned, err error) {
		p.Plan, err = kind.Plan(ctx, chain, child, object, d.Policy(), nil)
		p.wait = p.grace(now)
		return p, err
	}
	again, err = d.reading(ctx, owner, clusterOf(object), func(ctx context.Context) (err error) {
		p, err = plan(ctx, d.Chain)
		return err
	})
	if err != nil || again > 0 {
		return again, err
	}
	d.pending.set(root, gvk.GroupKind(), clusterOf(object), p.pending())
	if p.Observed {
		d.observe(object, p)
		return p.wait, nil
	}
	if p.Reason.CleansUp() {
		return d.cleanUp(ctx, object, gvk)
	}
	var unread error
	if p.writes() {
		again, err = d.ofKind(ctx, d.changing, gvk.GroupKind(), clusterOf(object), func(ctx context.Context) (sent bool, err error) {
			if p.Behind(object) {
				if p, unread = owners.DecideLive(ctx, d.Chain, plan); unread != nil || !p.writes() {
					return false, nil
				}
			}
			return true, d.write(ctx, object, gvk, p)
		})
	}
	if apierrors.IsConflict(err) {
		return behind, nil // the object has a newer version
	}
	if again > 0 || unread != nil {
		return again, unread
	}
	if p.Plan.Plan == nil {
		ctrl.LoggerFrom(ctx).V(2).Info("Object inherits nothing for now", "reason", p.Reason)
		return 0, err
	}
	if problems := errors.Join(p.Problems(), p.LeftOut()); problems != nil {
		d.leftOut(object, p.Sources(ctx).Located(problems))
	}
	return p.wait, err
}

// grace returns the time for which additions are still left to Cluster API's controllers of the owners, which make the same write: until
// graceTime after the last change of an owner. An owner that no controller has ever observed does not count. A removal never waits: Cluster
// API gives up its own share of an entry, and changes nothing that anybody else could see, while Heirloom still owns the entry.
func (p planned) grace(now time.Time) (longest time.Duration) {
	if p.Plan.Plan == nil || !p.Needed() || p.GivesUp() {
		return 0
	}
	for _, owner := range p.DeclaredBy() {
		changed := managedfields.LastChanged(owner.GetManagedFields())
		if owners.ObservedGeneration(owner) > 0 && !changed.IsZero() {
			longest = max(longest, min(changed.Add(graceTime).Sub(now), graceTime))
		}
	}
	return longest
}

// cleanUp cleans up an object whose label asks for it.
func (d *Dependencies) cleanUp(ctx context.Context, object client.Object, gvk schema.GroupVersionKind) (again time.Duration, err error) {
	if !managedfields.Recorded(object.GetManagedFields()) {
		return 0, nil
	}
	again, err = d.ofKind(ctx, d.changing, gvk.GroupKind(), clusterOf(object), func(ctx context.Context) (sent bool, err error) {
		changed, removed, err := cleanup.Object(ctx, d.Client, d.Live, gvk, client.ObjectKeyFromObject(object), cleanup.Mode{})
		if changed {
			d.Metrics.Write(metrics.Kind(gvk.Group, gvk.Kind), result(nil))
			ctrl.LoggerFrom(ctx).Info("Cleaned up object", "removed", removed)
		}
		return true, err
	})
	if err != nil {
		d.failed(object, err)
		return 0, fmt.Errorf("cleaning up the %s: %w", gvk.Kind, err)
	}
	return again, nil
}

// write carries out a plan that contains changes.
func (d *Dependencies) write(ctx context.Context, object client.Object, gvk schema.GroupVersionKind, p planned) error {
	if p.Adopts() || p.GivesUp() {
		return d.patch(ctx, object, gvk, p)
	}
	return d.apply(ctx, object, gvk, p)
}

// apply sends the entries that a child should inherit as a forced server-side apply: an owner is authoritative for its declarations.
func (d *Dependencies) apply(ctx context.Context, object client.Object, gvk schema.GroupVersionKind, p planned) error {
	config, err := p.ApplyConfiguration(gvk.GroupVersion().String(), gvk.Kind, object)
	if err != nil {
		return err
	}
	err = d.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(config), client.FieldOwner(managedfields.Manager), client.ForceOwnership)
	d.written(object, gvk, p.Plan.Plan, err)
	if err != nil {
		return fmt.Errorf("applying inherited entries to the %s: %w", gvk.Kind, err)
	}
	ctrl.LoggerFrom(ctx).Info("Applied inherited entries", "changes", len(p.Changes()))
	return nil
}

// patch removes entries that the object no longer inherits, and adopts inherited entries that its creator owns. An apply cannot take
// fields over from an Update. If an apply gives up fields, it also removes parents without an owner: the whole spec of an object without
// managed fields. Additions are left to the apply that follows the patch's event.
//
// The object is read first, because the cache has only a part of it. The patch is valid only for the version that was read.
func (d *Dependencies) patch(ctx context.Context, object client.Object, gvk schema.GroupVersionKind, p planned) error {
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(gvk)
	if err := d.Live.Get(ctx, client.ObjectKeyFromObject(object), stored); err != nil {
		return gone(err, gvk.Kind)
	}
	if stored.GetResourceVersion() != object.GetResourceVersion() {
		// Retry, as after a conflict: a change of fields that the cache does not keep may cause no event.
		resource := schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}
		return apierrors.NewConflict(resource, object.GetName(), errors.New("the cache has another version of the object")) //nolint:wrapcheck // it is our own
	}
	plan, err := managedfields.NewRemoval(stored, p.Current, p.Decision.Decision)
	if err != nil || !plan.Needed() {
		return err
	}
	raw, err := stored.MarshalJSON()
	if err != nil {
		return fmt.Errorf("writing the %s: %w", gvk.Kind, err)
	}
	operations, err := plan.Patch(raw, stored.GetAPIVersion(), time.Now())
	if err != nil {
		return err
	}
	patch, err := json.Marshal(append(operations, jsonpatch.NewOperation("replace", "/metadata/resourceVersion", stored.GetResourceVersion())))
	if err != nil {
		return fmt.Errorf("writing the patch: %w", err)
	}
	err = d.Client.Patch(ctx, stored, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(managedfields.Manager))
	d.written(object, gvk, plan, err)
	if err != nil {
		return fmt.Errorf("patching inherited entries of the %s: %w", gvk.Kind, err)
	}
	ctrl.LoggerFrom(ctx).Info("Removed or adopted inherited entries", "changes", len(plan.Changes()))
	return nil
}

// written counts a write and its changes, and reports a failure on the object.
func (d *Dependencies) written(object client.Object, gvk schema.GroupVersionKind, plan *managedfields.Plan, err error) {
	kind := metrics.Kind(gvk.Group, gvk.Kind)
	d.Metrics.Write(kind, result(err))
	d.failed(object, err)
	if err != nil {
		return
	}
	for _, change := range plan.Changes() {
		became := metrics.KeyInjected
		if change.Value == nil {
			became = metrics.KeyRemoved
		}
		d.Metrics.Key(metrics.ByResync, kind, change.What, became)
	}
}
