// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// updates passes update events for which the function returns true, and no other events.
func updates(of func(e event.UpdateEvent) bool) predicate.Funcs {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  of,
	}
}

// changed passes, of update events, resyncs and changes of fields that the caches keep, which are the fields that the rules read. It
// drops most writes of a status, such as the heartbeats of kubelets.
func changed() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		if e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion() {
			return true
		}
		before, _ := e.ObjectOld.DeepCopyObject().(client.Object)
		before.SetResourceVersion(e.ObjectNew.GetResourceVersion())
		return !reflect.DeepEqual(before, e.ObjectNew)
	}}
}

// resumed passes the creation of a Cluster, which its objects may precede, and updates after which all its objects must be reconciled: the
// Cluster is no longer paused or skipped, its label cleans up its objects, or its mode, its instance or the keys that it names have changed.
func resumed() predicate.Predicate {
	held := func(cluster *clusterv1.Cluster) bool {
		return inherit.Paused(cluster) || inherit.SkippedByLabel(cluster)
	}
	passes := updates(func(e event.UpdateEvent) bool {
		before, _ := e.ObjectOld.(*clusterv1.Cluster)
		after, ok := e.ObjectNew.(*clusterv1.Cluster)
		return ok && (held(before) && !held(after) || inherit.CleansUp(after) && !inherit.CleansUp(before) || saysElse(e))
	})
	passes.CreateFunc = func(event.CreateEvent) bool { return true }
	return passes
}

// saysElse reports whether an update of a Cluster or a ClusterClass changes its mode, its instance or the keys that it names for Nodes.
func saysElse(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()
	return e.ObjectOld.GetLabels()[inherit.ModeLabel] != e.ObjectNew.GetLabels()[inherit.ModeLabel] ||
		e.ObjectOld.GetLabels()[clusterv1.WatchLabel] != e.ObjectNew.GetLabels()[clusterv1.WatchLabel] ||
		before[inherit.SyncLabelsAnnotation] != after[inherit.SyncLabelsAnnotation] ||
		before[inherit.SyncAnnotationsAnnotation] != after[inherit.SyncAnnotationsAnnotation]
}

// skippedNow passes updates that label an object with heirloom.dev/ignore.
func skippedNow() predicate.Predicate {
	return updates(func(e event.UpdateEvent) bool {
		return inherit.SkippedByLabel(e.ObjectNew) && !inherit.SkippedByLabel(e.ObjectOld)
	})
}

// declaresElse passes updates of an owner that change its spec, and so its declarations for Machines.
func declaresElse() predicate.Predicate {
	return updates(func(e event.UpdateEvent) bool { return e.ObjectNew.GetGeneration() != e.ObjectOld.GetGeneration() })
}

// resynced passes updates without a change, which come with each sync period, and all events that are not updates.
func resynced() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
	}}
}

// declaredAnew passes events of a Cluster, also its creation and deletion, after which the objects of its topology must be reconciled.
func declaredAnew() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, resumed())
}

// classChanged passes events of a ClusterClass after which the objects of its Clusters must be reconciled.
func classChanged() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, updates(saysElse))
}

// children enqueues the objects of the list's kind that an owner controls.
func (d *Dependencies) children(list client.ObjectList) handler.EventHandler {
	return enqueue(func(ctx context.Context, owner client.Object) ([]types.NamespacedName, error) {
		return d.Chain.Children(ctx, owner, newList(list))
	})
}

// clustersOf finds the names of the Clusters that an object concerns.
type clustersOf = func(context.Context, client.Object) ([]types.NamespacedName, error)

// itsOwn returns the name of the event's Cluster.
func itsOwn(_ context.Context, cluster client.Object) ([]types.NamespacedName, error) {
	return []types.NamespacedName{client.ObjectKeyFromObject(cluster)}, nil
}

// every returns the names of all Clusters.
func (d *Dependencies) every(ctx context.Context, _ client.Object) ([]types.NamespacedName, error) {
	return d.Chain.Keys(ctx, &clusterv1.ClusterList{})
}

// ofEach returns a function that runs a look-up in each Cluster. A failed look-up does not stop the look-ups in the other Clusters.
func ofEach[R any](
	clusters clustersOf, lookUp func(context.Context, types.NamespacedName) ([]R, error),
) func(context.Context, client.Object) ([]R, error) {
	return func(ctx context.Context, object client.Object) (all []R, err error) {
		keys, err := clusters(ctx, object)
		for _, cluster := range keys {
			found, clusterErr := lookUp(ctx, cluster)
			all, err = append(all, found...), errors.Join(err, clusterErr)
		}
		return all, err
	}
}

// members enqueues the objects of the list's kind that belong to the Clusters.
func (d *Dependencies) members(clusters clustersOf, list client.ObjectList) handler.EventHandler {
	return enqueue(ofEach(clusters, func(ctx context.Context, cluster types.NamespacedName) ([]types.NamespacedName, error) {
		return d.Chain.Members(ctx, cluster, newList(list))
	}))
}

// all enqueues all objects of the list's kind after each event of a channel.
func (d *Dependencies) all(events <-chan event.GenericEvent, list client.ObjectList) source.Source {
	return source.Channel(events, enqueue(func(ctx context.Context, _ client.Object) ([]types.NamespacedName, error) {
		return d.Chain.Keys(ctx, newList(list))
	}))
}

// enqueue returns an event handler that enqueues the objects that a look-up finds.
func enqueue(lookUp func(context.Context, client.Object) ([]types.NamespacedName, error)) handler.EventHandler {
	return wake(func(ctx context.Context, object client.Object) ([]reconcile.Request, error) {
		keys, err := lookUp(ctx, object)
		requests := make([]reconcile.Request, 0, len(keys))
		for _, key := range keys {
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
		return requests, err
	})
}

// wake returns an event handler that enqueues the requests of a look-up. It only logs a failed look-up: the next resync repeats it.
func wake[R comparable](lookUp func(context.Context, client.Object) ([]R, error)) handler.TypedEventHandler[client.Object, R] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []R {
		requests, err := lookUp(ctx, object)
		if err != nil {
			kind := cmp.Or(object.GetObjectKind().GroupVersionKind().Kind, "object")
			ctrl.LoggerFrom(ctx).Error(err, "Failed to find the objects that inherit from a changed object", kind, klog.KObj(object))
		}
		return requests
	})
}

func newList(list client.ObjectList) client.ObjectList {
	fresh, _ := list.DeepCopyObject().(client.ObjectList)
	return fresh
}

// nodeHandler turns events of any object into requests about Nodes.
type nodeHandler = handler.TypedEventHandler[client.Object, NodeRequest]

// itself enqueues the event's Node, which belongs to the Cluster.
func itself(cluster types.NamespacedName) nodeHandler {
	return wake(func(_ context.Context, node client.Object) ([]NodeRequest, error) {
		return []NodeRequest{{Cluster: cluster, Name: node.GetName()}}, nil
	})
}

// nodesOf enqueues the Nodes that may belong to a Machine or a MachinePool, or to the Machines of a MachineSet or a MachineDeployment. It
// skips a Cluster that is not connected: when it connects, all its Nodes are reconciled.
func (d *Dependencies) nodesOf() nodeHandler {
	return wake(d.nodesOfObject)
}

func (d *Dependencies) nodesOfObject(ctx context.Context, object client.Object) ([]NodeRequest, error) {
	cluster := clusterOf(object)
	nodes, err := d.nodeReader(ctx, cluster)
	if nodes == nil || err != nil {
		return nil, err
	}
	keys, err := d.Chain.NodesOf(ctx, nodes, object)
	requests := make([]NodeRequest, 0, len(keys))
	for _, key := range keys {
		requests = append(requests, NodeRequest{Cluster: cluster, Name: key.Name})
	}
	return requests, err
}

// nodesOfExternal enqueues the Node of the Machine to which an InfraMachine or a BootstrapConfig belongs.
func (d *Dependencies) nodesOfExternal() nodeHandler {
	return wake(func(ctx context.Context, external client.Object) ([]NodeRequest, error) {
		owner, m := metav1.GetControllerOfNoCopy(external), &clusterv1.Machine{}
		if owner == nil || owner.Kind != "Machine" {
			return nil, nil
		}
		if err := d.Client.Get(ctx, types.NamespacedName{Namespace: external.GetNamespace(), Name: owner.Name}, m); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		return d.nodesOfObject(ctx, m)
	})
}

// nodesIn enqueues all Nodes of the Clusters.
func (d *Dependencies) nodesIn(clusters clustersOf) nodeHandler {
	return wake(ofEach(clusters, d.everyNodeIn))
}

func (d *Dependencies) everyNodeIn(ctx context.Context, cluster types.NamespacedName) ([]NodeRequest, error) {
	nodes, err := d.nodeReader(ctx, cluster)
	if nodes == nil || err != nil {
		return nil, err
	}
	list := &corev1.NodeList{}
	if err := nodes.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil { // only their names are read
		return nil, fmt.Errorf("listing the Nodes of %s: %w", cluster, err)
	}
	requests := make([]NodeRequest, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, NodeRequest{Cluster: cluster, Name: list.Items[i].Name})
	}
	return requests, nil
}

// nodeReader returns the cache with the Nodes of a Cluster, or nil if the Cluster is not connected.
func (d *Dependencies) nodeReader(ctx context.Context, cluster types.NamespacedName) (client.Reader, error) {
	if cluster == d.ManagementCluster {
		return d.Client, nil
	}
	if d.Workloads == nil {
		return nil, nil
	}
	reader, err := d.Workloads.GetReader(ctx, cluster)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reaching the workload cluster %s: %w", cluster, err)
	}
	return reader, nil
}
