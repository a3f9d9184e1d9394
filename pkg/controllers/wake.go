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

// updates passes those updates for which the function returns true, and no other events.
func updates(of func(e event.UpdateEvent) bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  of,
	}
}

// changed passes updates that change something that the caches keep, which is what the rules read, and resyncs. It drops most
// writes of status, such as the heartbeats of kubelets.
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

// resumed passes updates after which what belongs to a Cluster is no longer left alone: the Cluster is no longer paused or opted out,
// or its label releases what belongs to it.
func resumed() predicate.Predicate {
	held := func(cluster *clusterv1.Cluster) bool { return inherit.Paused(cluster) || inherit.Ignored(cluster) }
	return updates(func(e event.UpdateEvent) bool {
		before, _ := e.ObjectOld.(*clusterv1.Cluster)
		after, ok := e.ObjectNew.(*clusterv1.Cluster)
		return ok && (held(before) && !held(after) || inherit.Releases(after) && !inherit.Releases(before) || labelsModeElse(e) || namesElse(e))
	})
}

// namesElse reports whether an update of a Cluster names other keys for its Nodes.
func namesElse(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()
	return before[inherit.SyncLabelsAnnotation] != after[inherit.SyncLabelsAnnotation] ||
		before[inherit.SyncAnnotationsAnnotation] != after[inherit.SyncAnnotationsAnnotation]
}

// labelsModeElse reports whether an update of a Cluster or ClusterClass changes its mode.
func labelsModeElse(e event.UpdateEvent) bool {
	return e.ObjectOld.GetLabels()[inherit.ModeLabel] != e.ObjectNew.GetLabels()[inherit.ModeLabel]
}

// optedOut passes updates that opt an object out.
func optedOut() predicate.Predicate {
	return updates(func(e event.UpdateEvent) bool { return inherit.Ignored(e.ObjectNew) && !inherit.Ignored(e.ObjectOld) })
}

// declaresElse passes updates of an owner that change what it declares.
func declaresElse() predicate.Predicate {
	return updates(func(e event.UpdateEvent) bool { return e.ObjectNew.GetGeneration() != e.ObjectOld.GetGeneration() })
}

// resynced passes events without a change: those of the sync period, and the first of each object.
func resynced() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
	}}
}

// declaredAnew passes events of a Cluster after which its topology's objects need another look, also when the Cluster comes or goes.
func declaredAnew() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, resumed())
}

// classChanged passes events of a ClusterClass after which its Clusters' objects need another look.
func classChanged() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, updates(labelsModeElse))
}

// children wakes the objects of the list's kind that an owner controls.
func (d *Dependencies) children(list client.ObjectList) handler.EventHandler {
	return enqueue(func(ctx context.Context, owner client.Object) ([]types.NamespacedName, error) {
		return d.Chain.Children(ctx, owner, newList(list))
	})
}

// clustersOf finds the Clusters that an object is about.
type clustersOf = func(context.Context, client.Object) ([]types.NamespacedName, error)

// itsOwn finds the Cluster that the event is about.
func itsOwn(_ context.Context, cluster client.Object) ([]types.NamespacedName, error) {
	return []types.NamespacedName{client.ObjectKeyFromObject(cluster)}, nil
}

// every finds all Clusters.
func (d *Dependencies) every(ctx context.Context, _ client.Object) ([]types.NamespacedName, error) {
	return d.Chain.Keys(ctx, &clusterv1.ClusterList{})
}

// ofEach makes a look-up in each of these Clusters. A Cluster where it fails does not hold up the others.
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

// members wakes the objects of the list's kind that belong to these Clusters.
func (d *Dependencies) members(clusters clustersOf, list client.ObjectList) handler.EventHandler {
	return enqueue(ofEach(clusters, func(ctx context.Context, cluster types.NamespacedName) ([]types.NamespacedName, error) {
		return d.Chain.Members(ctx, cluster, newList(list))
	}))
}

// all wakes all objects of the list's kind after each event of a channel.
func (d *Dependencies) all(events <-chan event.GenericEvent, list client.ObjectList) source.Source {
	return source.Channel(events, enqueue(func(ctx context.Context, _ client.Object) ([]types.NamespacedName, error) {
		return d.Chain.Keys(ctx, newList(list))
	}))
}

// enqueue makes an event handler out of a look-up of objects.
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

// wake makes an event handler out of a look-up. A failed look-up is only logged, because the next resync repeats it.
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

// itself makes a request about the event's own Node, which is in that cluster.
func itself(cluster types.NamespacedName) nodeHandler {
	return wake(func(_ context.Context, node client.Object) ([]NodeRequest, error) {
		return []NodeRequest{{Cluster: cluster, Name: node.GetName()}}, nil
	})
}

// nodesOf wakes the Nodes that a Machine or a MachinePool may have, or the Machines of a MachineSet or a MachineDeployment. A Cluster
// that is not connected has none: its Nodes are all reconciled once it is.
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

// nodesOfExternal wakes the Node of the Machine to which an InfraMachine or a BootstrapConfig belongs.
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

// nodesIn wakes all Nodes of these Clusters.
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
