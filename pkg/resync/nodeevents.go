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
			return d.inBoth(ctx, o, o.Spec.ClusterName, func(nodes client.Reader) ([]types.NamespacedName, error) {
				return d.Chain.NodesOf(ctx, nodes, o)
			})
		case *capi.MachinePool:
			return d.inBoth(ctx, o, o.Spec.ClusterName, func(nodes client.Reader) ([]types.NamespacedName, error) {
				return d.Chain.NodesOfPool(ctx, nodes, o)
			})
		}
		return nil, fmt.Errorf("expected a Machine or a MachinePool, got %T", object)
	})
}

// nodesOfCluster are the Nodes of all Machines and MachinePools of a Cluster.
func (d Dependencies) nodesOfCluster() nodeHandler {
	return wake(func(ctx context.Context, cluster client.Object) ([]NodeRequest, error) {
		machines, pools := &capi.MachineList{}, &capi.MachinePoolList{}
		if _, err := d.Chain.Members(ctx, cluster, machines); err != nil {
			return nil, err
		}
		if _, err := d.Chain.Members(ctx, cluster, pools); err != nil {
			return nil, err
		}
		return d.inBoth(ctx, cluster, cluster.GetName(), func(nodes client.Reader) ([]types.NamespacedName, error) {
			var all []types.NamespacedName
			for i := range machines.Items {
				found, err := d.Chain.NodesOf(ctx, nodes, &machines.Items[i])
				if err != nil {
					return nil, err
				}
				all = append(all, found...)
			}
			for i := range pools.Items {
				found, err := d.Chain.NodesOfPool(ctx, nodes, &pools.Items[i])
				if err != nil {
					return nil, err
				}
				all = append(all, found...)
			}
			return all, nil
		})
	})
}

// inBoth looks Nodes up in the management cluster and in the workload cluster of that name. One that is not connected has
// none: all of them are looked at once it is.
func (d Dependencies) inBoth(
	ctx context.Context, object client.Object, cluster string, find func(nodes client.Reader) ([]types.NamespacedName, error),
) ([]NodeRequest, error) {
	own, err := find(d.Client)
	if err != nil {
		return nil, err
	}
	requests := nodeRequests(types.NamespacedName{}, own)
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: cluster}
	reader, err := d.Workloads.GetReader(ctx, key)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return requests, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reaching the workload cluster %s: %w", key, err)
	}
	found, err := find(reader)
	return append(requests, nodeRequests(key, found)...), err
}

func nodeRequests(cluster types.NamespacedName, nodes []types.NamespacedName) []NodeRequest {
	requests := make([]NodeRequest, 0, len(nodes))
	for _, key := range nodes {
		requests = append(requests, NodeRequest{Cluster: cluster, Name: key.Name})
	}
	return requests
}

// everyOwnNode are all Nodes of the management cluster.
func (d Dependencies) everyOwnNode() nodeHandler {
	return wake(func(ctx context.Context, _ client.Object) ([]NodeRequest, error) { return d.ownNodes(ctx) })
}

func (d Dependencies) ownNodes(ctx context.Context) ([]NodeRequest, error) {
	own, err := d.Chain.All(ctx, &corev1.NodeList{})
	return nodeRequests(types.NamespacedName{}, own), err
}

// everyNode are all Nodes, wherever they are. A cluster that cannot be read keeps no other from being looked at.
func (d Dependencies) everyNode() nodeHandler {
	return wake(func(ctx context.Context, _ client.Object) ([]NodeRequest, error) {
		requests, err := d.ownNodes(ctx)
		if err != nil {
			return nil, err
		}
		clusters, err := d.Chain.All(ctx, &capi.ClusterList{})
		if err != nil {
			return requests, err
		}
		var errs []error
		for _, cluster := range clusters {
			found, err := d.everyNodeIn(ctx, cluster)
			requests, errs = append(requests, found...), append(errs, err)
		}
		return requests, errors.Join(errs...)
	})
}

// everyNodeIn are all Nodes of a workload cluster; none where it is not connected, as above.
func (d Dependencies) everyNodeIn(ctx context.Context, cluster types.NamespacedName) ([]NodeRequest, error) {
	reader, err := d.Workloads.GetReader(ctx, cluster)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reaching the workload cluster %s: %w", cluster, err)
	}
	list := &corev1.NodeList{}
	if err := reader.List(ctx, list); err != nil {
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
