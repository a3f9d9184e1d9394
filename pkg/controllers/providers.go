// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

const (
	// kindTimeout limits the time of the requests about an object. The API server calls the webhooks of the object's kind, and an informer
	// may wait for a conversion webhook that does not answer.
	kindTimeout = 10 * time.Second
	// unserved is the minimum time until the next reconcile of an object that refers to a kind that the API server does not serve.
	unserved = time.Minute
)

// reading runs read in a slot of the kind, because the first read of a kind waits until the cache has listed it. An empty kind is always
// cached.
func (d *Dependencies) reading(
	ctx context.Context, kind schema.GroupKind, cluster types.NamespacedName, read func(context.Context) error,
) (again time.Duration, err error) {
	if kind.Empty() {
		return 0, read(ctx)
	}
	return d.ofKind(ctx, d.listing, kind, cluster, func(ctx context.Context) (bool, error) { return true, read(ctx) })
}

// ofKind runs a request about a kind in a slot of the kind; the request returns sent = false if it sent nothing. If the API server does
// not answer in time, ofKind records an Event on the Cluster.
func (d *Dependencies) ofKind(
	ctx context.Context, all *slots[schema.GroupKind], kind schema.GroupKind, cluster types.NamespacedName,
	request func(context.Context) (sent bool, err error),
) (again time.Duration, err error) {
	again, err = all.try(kind, func() (sent bool, err error) {
		ctx, cancel := context.WithTimeout(ctx, kindTimeout)
		defer cancel()
		return request(ctx)
	})
	if !unanswered(err) {
		return again, err
	}
	if of, clusterErr := d.Chain.Cluster(ctx, cluster.Namespace, cluster.Name); of != nil && clusterErr == nil {
		d.Recorder.Eventf(of, nil, corev1.EventTypeWarning, reasonProviderKindUnavailable, "Inherit",
			"Objects that depend on a %s inherit nothing for now: the API server does not answer in time for this kind (see Heirloom's log)", kind)
	}
	return again, err
}

// kindWatches adds watches of providers' kinds, which are known only once an object refers to them, to a controller. It watches a kind
// once in each version, because a provider may replace the served version.
type kindWatches[R comparable] struct {
	cache cache.Cache
	// controller must be set before the first watch.
	controller controller.TypedController[R]
	// watched is the set of watched schema.GroupVersionKinds.
	watched sync.Map
}

// watch sets the kind of the object in the version that the API server prefers, and watches this version. If the kind is not served,
// again is the time until the next reconcile.
func (w *kindWatches[R]) watch(
	chain *owners.Chain, kind schema.GroupKind, object client.Object, wake handler.TypedEventHandler[client.Object, R],
) (again time.Duration, err error) {
	gvk, served, err := chain.Served(kind.WithVersion(""))
	if err != nil {
		return 0, err
	}
	if !served {
		return wait.Jitter(unserved, 1), nil
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	if _, known := w.watched.LoadOrStore(gvk, true); known {
		return 0, nil
	}
	own, _ := object.DeepCopyObject().(client.Object)
	if err := w.controller.Watch(source.TypedKind(w.cache, own, wake, changed())); err != nil {
		w.watched.Delete(gvk)
		return 0, fmt.Errorf("watching %s: %w", gvk.Kind, err)
	}
	return 0, nil
}

// controlPlanes reconciles control planes with the declarations of their topology. A request names a Cluster, because only the Cluster
// says of which kind its control plane is.
type controlPlanes struct {
	*Dependencies
	watches *kindWatches[ctrl.Request]
}

// Reconcile implements reconcile.Reconciler.
func (r controlPlanes) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster, root := &clusterv1.Cluster{}, rootOf(owners.ControlPlanes.Resource, req)
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		r.pending.forget(root)
		r.Metrics.ClusterMode(req.NamespacedName, "")
		return ctrl.Result{}, gone(err, "Cluster")
	}
	r.Metrics.ClusterMode(req.NamespacedName, r.modeOf(ctx, cluster))
	kind := cluster.Spec.ControlPlaneRef.GroupKind()
	if !cluster.Spec.Topology.IsDefined() || kind.Group != inherit.ControlPlaneGroup {
		r.pending.forget(root)
		return ctrl.Result{}, nil
	}
	again, err := r.sync(ctx, root, cluster, kind)
	return ctrl.Result{RequeueAfter: again}, err
}

// modeOf returns the mode of a Cluster for the metrics; empty if another Heirloom handles it.
func (r controlPlanes) modeOf(ctx context.Context, cluster *clusterv1.Cluster) metrics.Mode {
	switch _, observed, enrolled, _ := r.Chain.Observes(ctx, cluster, r.Policy()); {
	case r.Policy().LeftToAnother(cluster):
		return ""
	case !enrolled:
		return metrics.ModeNone
	case observed:
		return metrics.ModeObserve
	}
	return metrics.ModeEnforce
}

func (r controlPlanes) sync(ctx context.Context, root string, cluster *clusterv1.Cluster, kind schema.GroupKind) (again time.Duration, err error) {
	itsCluster := enqueue(func(_ context.Context, cp client.Object) ([]types.NamespacedName, error) {
		return []types.NamespacedName{clusterOf(cp)}, nil
	})
	if again, err = r.watches.watch(r.Chain, kind, &unstructured.Unstructured{}, itsCluster); err != nil || again > 0 {
		return again, err
	}
	ref := &metav1.OwnerReference{
		APIVersion: kind.WithVersion("").GroupVersion().String(), Kind: kind.Kind, Name: cluster.Spec.ControlPlaneRef.Name,
	}
	var object *unstructured.Unstructured
	var cp *inherit.ControlPlane
	again, err = r.reading(ctx, kind, client.ObjectKeyFromObject(cluster), func(ctx context.Context) (err error) {
		object, cp, err = r.Chain.ControlPlane(ctx, cluster.Namespace, ref)
		return err
	})
	if err != nil || again > 0 {
		return again, err
	}
	if object == nil {
		r.pending.forget(root)
		return 0, nil
	}
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues(kind.Kind, klog.KObj(object)))
	return syncChild(ctx, r.Dependencies, root, owners.ControlPlanes, cp, object, schema.GroupKind{})
}

// machines reconciles Machines, with their InfraMachines and BootstrapConfigs.
type machines struct {
	*Dependencies
	watches *kindWatches[ctrl.Request]
}

// Reconcile implements reconcile.Reconciler. A failed write of one of the three objects does not delay the other objects.
func (r machines) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m, root := &clusterv1.Machine{}, rootOf(owners.Machines.Resource, req)
	if err := r.Client.Get(ctx, req.NamespacedName, m); err != nil {
		r.pending.forget(root)
		return ctrl.Result{}, gone(err, "Machine")
	}
	ctx = withCluster(ctx, m)
	owner, again, err := r.watchOwner(m)
	if err != nil {
		return ctrl.Result{}, err
	}
	mAgain, err := syncChild(ctx, r.Dependencies, root, owners.Machines, m, m, owner)
	again = sooner(again, mAgain)
	for _, ref := range owners.ExternalRefs(m) {
		refAgain, refErr := r.syncExternal(ctx, root, m, ref, owner)
		again, err = sooner(again, refAgain), errors.Join(err, refErr)
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// watchOwner watches the kind of the Machine's owner and returns it, if the owner is a control plane. A change of the control plane
// enqueues the Machine, even if the control plane does not exist yet, as in a restore.
func (r machines) watchOwner(m *clusterv1.Machine) (kind schema.GroupKind, again time.Duration, err error) {
	ref := metav1.GetControllerOfNoCopy(m)
	if ref == nil {
		return schema.GroupKind{}, 0, nil
	}
	kind = schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	if kind.Group != inherit.ControlPlaneGroup {
		return schema.GroupKind{}, 0, nil
	}
	again, err = r.watches.watch(r.Chain, kind, &unstructured.Unstructured{}, r.children(&clusterv1.MachineList{}))
	if again > 0 { // it is not served: an invented kind must not get slots
		kind = schema.GroupKind{}
	}
	return kind, again, err
}

// syncExternal reconciles an InfraMachine or a BootstrapConfig. It ignores kinds in API groups that the operator has not named: Heirloom
// has no rights to read them.
func (r machines) syncExternal(ctx context.Context, root string, m *clusterv1.Machine, ref clusterv1.ContractVersionedObjectReference, owner schema.GroupKind) (again time.Duration, err error) {
	if !slices.Contains(r.ProviderGroups, ref.GroupKind().Group) || inherit.IsTemplate(ref.Kind) {
		return 0, nil
	}
	object := &metav1.PartialObjectMetadata{}
	itsMachine := handler.EnqueueRequestForOwner(r.Client.Scheme(), r.Client.RESTMapper(), &clusterv1.Machine{}, handler.OnlyControllerOwner())
	if again, err = r.watches.watch(r.Chain, ref.GroupKind(), object, itsMachine); err != nil || again > 0 {
		return again, err
	}
	again, err = r.reading(ctx, ref.GroupKind(), clusterOf(m), func(ctx context.Context) error {
		return r.Client.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: ref.Name}, object)
	})
	if apierrors.IsNotFound(err) {
		r.pending.set(root, ref.GroupKind(), types.NamespacedName{}, false)
	}
	if err != nil || again > 0 {
		return again, gone(err, ref.Kind)
	}
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues(ref.Kind, klog.KObj(object)))
	return syncChild(ctx, r.Dependencies, root, owners.ExternalObjects, object, object, owner)
}

// sooner returns the shorter time to wait; 0 means that there is nothing to wait for.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
