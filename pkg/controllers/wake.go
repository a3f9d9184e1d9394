// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// updates passes those updates for which the function returns true, and no other events.
func updates(of func(e event.UpdateEvent) bool) predicate.Funcs {
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
		version := e.ObjectNew.GetResourceVersion()
		return e.ObjectOld.GetResourceVersion() == version || !reflect.DeepEqual(inVersion(e.ObjectOld, version), e.ObjectNew)
	}}
}

// inVersion returns a shallow copy of the object with another resourceVersion.
func inVersion(object client.Object, version string) client.Object {
	if content, ok := object.(*unstructured.Unstructured); ok {
		copied := content.DeepCopy() // its resourceVersion is within a map
		copied.SetResourceVersion(version)
		return copied
	}
	copied := reflect.New(reflect.TypeOf(object).Elem())
	copied.Elem().Set(reflect.ValueOf(object).Elem())
	same, ok := copied.Interface().(client.Object)
	if !ok {
		return object
	}
	same.SetResourceVersion(version)
	return same
}

// resumed passes updates after which what belongs to a Cluster is no longer left alone: the Cluster is no longer paused or opted out,
// or its label releases what belongs to it.
func resumed() predicate.Predicate {
	held := func(object client.Object) bool {
		cluster, ok := object.(*clusterv1.Cluster)
		return ok && (inherit.Paused(cluster) || inherit.Ignored(cluster))
	}
	released := func(object client.Object) bool {
		cluster, ok := object.(*clusterv1.Cluster)
		return ok && inherit.Releases(cluster)
	}
	return updates(func(e event.UpdateEvent) bool {
		return held(e.ObjectOld) && !held(e.ObjectNew) || released(e.ObjectNew) && !released(e.ObjectOld)
	})
}

// created passes events of new objects.
func created() predicate.Predicate {
	funcs := updates(func(event.UpdateEvent) bool { return false })
	funcs.CreateFunc = func(event.CreateEvent) bool { return true }
	return funcs
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

// declaredAnew passes events of a Cluster after which its topology's objects need another look.
func declaredAnew() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, resumed())
}

// children wakes the objects of the list's kind that an owner controls.
func (d *Dependencies) children(list client.ObjectList) handler.EventHandler {
	return enqueue(func(ctx context.Context, owner client.Object) ([]types.NamespacedName, error) {
		return d.Chain.Children(ctx, owner, newList(list))
	})
}

// members wakes the objects of the list's kind that belong to a Cluster.
func (d *Dependencies) members(list client.ObjectList) handler.EventHandler {
	return enqueue(func(ctx context.Context, cluster client.Object) ([]types.NamespacedName, error) {
		return d.Chain.Members(ctx, client.ObjectKeyFromObject(cluster), newList(list))
	})
}

// membersOfClass wakes the objects of all Clusters that use a ClusterClass.
func (d *Dependencies) membersOfClass(list client.ObjectList) handler.EventHandler {
	return enqueue(func(ctx context.Context, class client.Object) (keys []types.NamespacedName, err error) {
		clusters, err := d.Chain.ClustersOf(ctx, class)
		for _, cluster := range clusters {
			found, clusterErr := d.Chain.Members(ctx, cluster, newList(list))
			keys, err = append(keys, found...), errors.Join(err, clusterErr)
		}
		return keys, err
	})
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
	fresh, ok := list.DeepCopyObject().(client.ObjectList)
	if !ok {
		return list
	}
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

// nodesOf wakes the Nodes that a Machine or a MachinePool may have.
func (d *Dependencies) nodesOf() nodeHandler {
	return wake(func(ctx context.Context, object client.Object) ([]NodeRequest, error) {
		cluster := types.NamespacedName{Namespace: object.GetNamespace()}
		switch o := object.(type) {
		case *clusterv1.Machine:
			cluster.Name = o.Spec.ClusterName
		case *clusterv1.MachinePool:
			cluster.Name = o.Spec.ClusterName
		}
		return d.nodesIn(ctx, cluster, []runtime.Object{object})
	})
}

// nodesBelow wakes the Nodes of all Machines below a MachineDeployment or a MachineSet.
func (d *Dependencies) nodesBelow() nodeHandler {
	return wake(func(ctx context.Context, object client.Object) ([]NodeRequest, error) {
		machines, err := d.Chain.MachinesBelow(ctx, object)
		if err != nil || len(machines) == 0 {
			return nil, err
		}
		all := make([]runtime.Object, 0, len(machines))
		for i := range machines {
			all = append(all, &machines[i])
		}
		return d.nodesIn(ctx, types.NamespacedName{Namespace: object.GetNamespace(), Name: machines[0].Spec.ClusterName}, all)
	})
}

// nodesOfClass wakes the Nodes of all Clusters of a ClusterClass.
func (d *Dependencies) nodesOfClass() nodeHandler {
	return wake(func(ctx context.Context, class client.Object) (requests []NodeRequest, err error) {
		clusters, err := d.Chain.ClustersOf(ctx, class)
		for _, cluster := range clusters {
			found, clusterErr := d.nodesOfMembers(ctx, cluster)
			requests, err = append(requests, found...), errors.Join(err, clusterErr)
		}
		return requests, err
	})
}

// nodesOfCluster wakes the Nodes of all Machines and MachinePools of a Cluster.
func (d *Dependencies) nodesOfCluster() nodeHandler {
	return wake(func(ctx context.Context, object client.Object) ([]NodeRequest, error) {
		return d.nodesOfMembers(ctx, client.ObjectKeyFromObject(object))
	})
}

func (d *Dependencies) nodesOfMembers(ctx context.Context, cluster types.NamespacedName) ([]NodeRequest, error) {
	var all []runtime.Object
	for _, list := range []client.ObjectList{&clusterv1.MachineList{}, &clusterv1.MachinePoolList{}} {
		if _, err := d.Chain.Members(ctx, cluster, list); err != nil {
			return nil, err
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return nil, fmt.Errorf("reading %T: %w", list, err)
		}
		all = append(all, items...)
	}
	return d.nodesIn(ctx, cluster, all)
}

// nodesIn returns the Nodes of Machines and MachinePools of a Cluster. A Cluster that is not connected has none: its Nodes are all
// reconciled once it is.
func (d *Dependencies) nodesIn(ctx context.Context, cluster types.NamespacedName, sources []runtime.Object) ([]NodeRequest, error) {
	nodes, err := d.nodeReader(ctx, cluster)
	if nodes == nil || err != nil {
		return nil, err
	}
	var requests []NodeRequest
	for _, source := range sources {
		object, _ := source.(client.Object)
		keys, err := owners.NodesOf(ctx, nodes, object)
		if err != nil {
			return requests, err
		}
		for _, key := range keys {
			requests = append(requests, NodeRequest{Cluster: cluster, Name: key.Name})
		}
	}
	return requests, nil
}

// everyNode wakes the Nodes of all Clusters. A Cluster whose Nodes cannot be read does not hold up the others.
func (d *Dependencies) everyNode() nodeHandler {
	return wake(func(ctx context.Context, _ client.Object) (requests []NodeRequest, err error) {
		clusters, err := d.Chain.Keys(ctx, &clusterv1.ClusterList{})
		for _, cluster := range clusters {
			found, clusterErr := d.everyNodeIn(ctx, cluster)
			requests, err = append(requests, found...), errors.Join(err, clusterErr)
		}
		return requests, err
	})
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
	reader, err := d.Workloads.GetReader(ctx, cluster)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reaching the workload cluster %s: %w", cluster, err)
	}
	return reader, nil
}
