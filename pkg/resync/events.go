// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// resumed passes those updates of a Cluster after which its objects are to be looked at again: it was paused or opted
// out before.
func resumed() predicate.Predicate {
	held := func(object client.Object) bool {
		cluster, ok := object.(*capi.Cluster)
		return ok && (inherit.Paused(cluster) || inherit.Ignored(cluster))
	}
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return held(e.ObjectOld) && !held(e.ObjectNew) },
	}
}

// createdOrResumed passes those events of a Cluster after which its Nodes are to be looked at again: it has not been there
// before, is resumed, or is opted out now, which is counted.
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

// resynced passes the events in which nothing changes: those of the sync period, and the first of each object.
func resynced() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
	}}
}

// declaredAnew passes those events of a Cluster after which its topology's objects are to be looked at again.
func declaredAnew() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, resumed())
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

// membersOfClass are the objects of all Clusters whose topology is of a ClusterClass.
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

// policyChanges looks at all objects of the list's kind again when the rules' options have changed.
func (d Dependencies) policyChanges(list client.ObjectList) source.Source {
	return d.again(d.PolicyChanges(), list)
}

// again looks at all objects of the list's kind after each event.
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

// wake makes an event handler out of a look-up. One that fails is logged: the next resync repeats it.
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
