// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// resumed passes updates of a Cluster that is no longer paused or opted out, so its objects need another look.
func resumed() predicate.Predicate {
	held := func(object client.Object) bool {
		cluster, ok := object.(*clusterv1.Cluster)
		return ok && (inherit.Paused(cluster) || inherit.Ignored(cluster))
	}
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return held(e.ObjectOld) && !held(e.ObjectNew) },
	}
}

// createdOrResumed passes events of a Cluster whose Nodes need another look: it is new, is resumed, or is now opted out,
// which is counted.
func createdOrResumed() predicate.Predicate {
	optedOut := predicate.Funcs{
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return inherit.Ignored(e.ObjectNew) && !inherit.Ignored(e.ObjectOld)
		},
	}
	return predicate.Or[client.Object](resumed(), optedOut)
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

// declaresElse passes updates of an owner that change what it declares. Nodes are woken by those of all owners above them but
// control planes, so that they need not wait for each level to inherit from the one above.
func declaresElse() predicate.Predicate {
	return predicate.And[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	})
}

func (d Dependencies) children(list client.ObjectList) handler.EventHandler {
	return enqueue(func(ctx context.Context, owner client.Object) ([]types.NamespacedName, error) {
		return d.Chain.Children(ctx, owner, newList(list))
	})
}

func (d Dependencies) members(list client.ObjectList) handler.EventHandler {
	return enqueue(func(ctx context.Context, cluster client.Object) ([]types.NamespacedName, error) {
		return d.Chain.Members(ctx, client.ObjectKeyFromObject(cluster), newList(list))
	})
}

// membersOfClass wakes the objects of all Clusters that use a ClusterClass.
func (d Dependencies) membersOfClass(list client.ObjectList) handler.EventHandler {
	return enqueue(func(ctx context.Context, class client.Object) ([]types.NamespacedName, error) {
		clusters, err := d.Chain.ClustersOf(ctx, class)
		if err != nil {
			return nil, err
		}
		var keys []types.NamespacedName
		for _, cluster := range clusters {
			found, err := d.Chain.Members(ctx, cluster, newList(list))
			if err != nil {
				return nil, err
			}
			keys = append(keys, found...)
		}
		return keys, nil
	})
}

// policyChanges wakes all objects of the list's kind when the rules' options have changed.
func (d Dependencies) policyChanges(list client.ObjectList) source.Source {
	return d.again(d.PolicyChanges(), list)
}

// again wakes all objects of the list's kind after each event.
func (d Dependencies) again(events <-chan event.GenericEvent, list client.ObjectList) source.Source {
	return source.Channel(events, enqueue(func(ctx context.Context, _ client.Object) ([]types.NamespacedName, error) {
		return ownerchain.Keys(ctx, d.Chain, newList(list))
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
