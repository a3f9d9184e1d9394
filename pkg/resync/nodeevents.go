// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// nodeHandler turns events of any object into requests about Nodes.
type nodeHandler = handler.TypedEventHandler[client.Object, NodeRequest]

// itself makes a request about the event's own Node, which is in that cluster.
func itself(cluster types.NamespacedName) nodeHandler {
	return wake(func(_ context.Context, node client.Object) ([]NodeRequest, error) {
		return []NodeRequest{{Cluster: cluster, Name: node.GetName()}}, nil
	})
}

// nodesOf wakes the Nodes that a Machine or a MachinePool may have, in the management cluster and in its own.
func (d Dependencies) nodesOf() nodeHandler {
	return wake(func(ctx context.Context, object client.Object) ([]NodeRequest, error) {
		cluster := types.NamespacedName{Namespace: object.GetNamespace()}
		switch o := object.(type) {
		case *clusterv1.Machine:
			cluster.Name = o.Spec.ClusterName
		case *clusterv1.MachinePool:
			cluster.Name = o.Spec.ClusterName
		}
		return d.inBoth(ctx, cluster, []runtime.Object{object})
	})
}

// nodesBelow wakes the Nodes of all Machines below a MachineDeployment or a MachineSet.
func (d Dependencies) nodesBelow() nodeHandler {
	return wake(func(ctx context.Context, object client.Object) ([]NodeRequest, error) {
		machines, err := d.Chain.MachinesBelow(ctx, object)
		if err != nil || len(machines) == 0 {
			return nil, err
		}
		all := make([]runtime.Object, 0, len(machines))
		for i := range machines {
			all = append(all, &machines[i])
		}
		return d.inBoth(ctx, types.NamespacedName{Namespace: object.GetNamespace(), Name: machines[0].Spec.ClusterName}, all)
	})
}

// nodesOfClass wakes the Nodes of all Clusters of a ClusterClass.
func (d Dependencies) nodesOfClass() nodeHandler {
	return wake(func(ctx context.Context, class client.Object) ([]NodeRequest, error) {
		clusters, err := d.Chain.ClustersOf(ctx, class)
		var requests []NodeRequest
		for _, cluster := range clusters {
			found, clusterErr := d.nodesOfMembers(ctx, cluster)
			requests, err = append(requests, found...), errors.Join(err, clusterErr)
		}
		return requests, err
	})
}

// nodesOfCluster wakes the Nodes of all Machines and MachinePools of a Cluster.
func (d Dependencies) nodesOfCluster() nodeHandler {
	return wake(func(ctx context.Context, object client.Object) ([]NodeRequest, error) {
		return d.nodesOfMembers(ctx, client.ObjectKeyFromObject(object))
	})
}

func (d Dependencies) nodesOfMembers(ctx context.Context, cluster types.NamespacedName) ([]NodeRequest, error) {
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
	return d.inBoth(ctx, cluster, all)
}

// inBoth looks up the Nodes of Machines and MachinePools in the management cluster and in the workload cluster of that name.
func (d Dependencies) inBoth(ctx context.Context, cluster types.NamespacedName, sources []runtime.Object) ([]NodeRequest, error) {
	find := func(nodes client.Reader) ([]types.NamespacedName, error) {
		var all []types.NamespacedName
		for _, source := range sources {
			object, _ := source.(client.Object)
			found, err := ownerchain.NodesOf(ctx, nodes, object)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	}
	own, err := d.nodesIn(ctx, types.NamespacedName{}, find)
	if err != nil {
		return nil, err
	}
	found, err := d.nodesIn(ctx, cluster, find)
	return append(own, found...), err
}

// nodesIn looks up Nodes in a workload cluster, or in the management cluster if the name is empty. A cluster that is not
// connected yields none: its Nodes are all reconciled once it is.
func (d Dependencies) nodesIn(
	ctx context.Context, cluster types.NamespacedName, find func(nodes client.Reader) ([]types.NamespacedName, error),
) ([]NodeRequest, error) {
	reader := client.Reader(d.Client)
	if cluster.Name != "" {
		var err error
		reader, err = d.Workloads.GetReader(ctx, cluster)
		if errors.Is(err, clustercache.ErrClusterNotConnected) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reaching the workload cluster %s: %w", cluster, err)
		}
	}
	keys, err := find(reader)
	requests := make([]NodeRequest, 0, len(keys))
	for _, key := range keys {
		requests = append(requests, NodeRequest{Cluster: cluster, Name: key.Name})
	}
	return requests, err
}

// everyNodeIn returns all Nodes of a cluster.
func (d Dependencies) everyNodeIn(ctx context.Context, cluster types.NamespacedName) ([]NodeRequest, error) {
	return d.nodesIn(ctx, cluster, func(nodes client.Reader) ([]types.NamespacedName, error) {
		list := &corev1.NodeList{}
		if err := nodes.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil { // only their names are read
			return nil, fmt.Errorf("listing the Nodes of %s: %w", cluster, err)
		}
		keys := make([]types.NamespacedName, 0, len(list.Items))
		for i := range list.Items {
			keys = append(keys, client.ObjectKeyFromObject(&list.Items[i]))
		}
		return keys, nil
	})
}

// everyOwnNode wakes all Nodes of the management cluster.
func (d Dependencies) everyOwnNode() nodeHandler {
	return wake(func(ctx context.Context, _ client.Object) ([]NodeRequest, error) {
		return d.everyNodeIn(ctx, types.NamespacedName{})
	})
}

// everyNode wakes the Nodes of all clusters. A cluster that cannot be read does not hold up the others.
func (d Dependencies) everyNode() nodeHandler {
	return wake(func(ctx context.Context, _ client.Object) ([]NodeRequest, error) {
		requests, err := d.everyNodeIn(ctx, types.NamespacedName{})
		if err != nil {
			return nil, err
		}
		clusters, err := ownerchain.Keys(ctx, d.Chain, &clusterv1.ClusterList{})
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
