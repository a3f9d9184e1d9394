// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// nodeHandler makes requests about Nodes of the events of another object.
type nodeHandler = handler.TypedEventHandler[client.Object, NodeRequest]

// itself makes a request about the Node of that cluster which the event is about.
func itself(cluster types.NamespacedName) nodeHandler {
	return wake(func(_ context.Context, node client.Object) ([]NodeRequest, error) {
		return []NodeRequest{{Cluster: cluster, Name: node.GetName()}}, nil
	})
}

// nodesOf are the Nodes that a Machine or a MachinePool may be, in the management cluster and in its own.
func (d Dependencies) nodesOf() nodeHandler {
	return wake(func(ctx context.Context, object client.Object) ([]NodeRequest, error) {
		switch o := object.(type) {
		case *capi.Machine:
			return d.inBoth(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ClusterName}, []capi.Machine{*o}, nil)
		case *capi.MachinePool:
			return d.inBoth(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ClusterName}, nil, []capi.MachinePool{*o})
		}
		return nil, fmt.Errorf("expected a Machine or a MachinePool, got %T", object)
	})
}

// nodesOfCluster are the Nodes of all Machines and MachinePools of a Cluster.
func (d Dependencies) nodesOfCluster() nodeHandler {
	return wake(func(ctx context.Context, cluster client.Object) ([]NodeRequest, error) {
		machines, pools := &capi.MachineList{}, &capi.MachinePoolList{}
		for _, list := range []client.ObjectList{machines, pools} {
			if _, err := d.Chain.Members(ctx, cluster, list); err != nil {
				return nil, err
			}
		}
		return d.inBoth(ctx, client.ObjectKeyFromObject(cluster), machines.Items, pools.Items)
	})
}

// inBoth looks the Nodes of Machines and MachinePools up in the management cluster and in their own.
func (d Dependencies) inBoth(
	ctx context.Context, cluster types.NamespacedName, machines []capi.Machine, pools []capi.MachinePool,
) ([]NodeRequest, error) {
	requests, err := d.below(ctx, types.NamespacedName{}, d.Client, machines, pools)
	if err != nil {
		return nil, err
	}
	nodes, err := d.nodesIn(ctx, cluster)
	if nodes == nil || err != nil {
		return requests, err
	}
	found, err := d.below(ctx, cluster, nodes, machines, pools)
	return append(requests, found...), err
}

// below looks the Nodes of Machines and MachinePools up in one cluster.
func (d Dependencies) below(
	ctx context.Context, cluster types.NamespacedName, nodes client.Reader, machines []capi.Machine, pools []capi.MachinePool,
) ([]NodeRequest, error) {
	var names []types.NamespacedName
	for i := range machines {
		found, err := d.Chain.NodesOf(ctx, nodes, &machines[i])
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	for i := range pools {
		found, err := d.Chain.NodesOfPool(ctx, nodes, &pools[i])
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	requests := make([]NodeRequest, 0, len(names))
	for _, key := range names {
		requests = append(requests, NodeRequest{Cluster: cluster, Name: key.Name})
	}
	return requests, nil
}

// nodesIn returns what reads the Nodes of a workload cluster. It is nil while that is not connected: all Nodes are looked at
// once it is.
func (d Dependencies) nodesIn(ctx context.Context, cluster types.NamespacedName) (client.Reader, error) {
	reader, err := d.Workloads.GetReader(ctx, cluster)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reaching the workload cluster %s: %w", cluster, err)
	}
	return reader, nil
}

// everyOwnNode are all Nodes of the management cluster.
func (d Dependencies) everyOwnNode() nodeHandler {
	return wake(func(ctx context.Context, _ client.Object) ([]NodeRequest, error) {
		return every(ctx, types.NamespacedName{}, d.Client)
	})
}

// everyNode are all Nodes, wherever they are. A cluster that cannot be read keeps no other from being looked at.
func (d Dependencies) everyNode() nodeHandler {
	return wake(func(ctx context.Context, _ client.Object) ([]NodeRequest, error) {
		requests, err := every(ctx, types.NamespacedName{}, d.Client)
		if err != nil {
			return nil, err
		}
		clusters, err := d.Chain.All(ctx, &capi.ClusterList{})
		errs := []error{err}
		for _, cluster := range clusters {
			nodes, err := d.nodesIn(ctx, cluster)
			if nodes != nil {
				var found []NodeRequest
				found, err = every(ctx, cluster, nodes)
				requests = append(requests, found...)
			}
			errs = append(errs, err)
		}
		return requests, errors.Join(errs...)
	})
}

// every are all Nodes of a cluster.
func every(ctx context.Context, cluster types.NamespacedName, nodes client.Reader) ([]NodeRequest, error) {
	list := &corev1.NodeList{}
	if err := nodes.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing the Nodes of %s: %w", cluster, err)
	}
	requests := make([]NodeRequest, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, NodeRequest{Cluster: cluster, Name: list.Items[i].Name})
	}
	return requests, nil
}

// nodeChanged passes the events of a Node in which something changes that the rules read; a kubelet writes every few
// minutes that it is alive. A resync changes nothing and passes.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, alsoOK := e.ObjectNew.(*corev1.Node)
		return !ok || !alsoOK || before.ResourceVersion == after.ResourceVersion ||
			!inherit.OfNode(before).Equal(inherit.OfNode(after)) || before.Spec.ProviderID != after.Spec.ProviderID ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			!slices.Equal(before.Status.Addresses, after.Status.Addresses)
	}}
}
