// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MayBeManagementCluster returns the Clusters that may be the management cluster itself: those with a Machine or a MachinePool
// that has the providerID of one of its Nodes.
func (c *Chain) MayBeManagementCluster(ctx context.Context) ([]*clusterv1.Cluster, error) {
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil { // every few seconds
		return nil, fmt.Errorf("listing the Nodes of the management cluster: %w", err)
	}
	names := sets.New[types.NamespacedName]()
	for i := range nodes.Items {
		if err := c.ClustersWith(ctx, nodes.Items[i].Spec.ProviderID, names); err != nil {
			return nil, err
		}
	}
	var clusters []*clusterv1.Cluster
	for name := range names {
		cluster, err := c.Cluster(ctx, name.Namespace, name.Name)
		if err != nil {
			return nil, err
		}
		if cluster != nil {
			clusters = append(clusters, cluster)
		}
	}
	return clusters, nil
}

// ClustersWith adds the Clusters with a Machine or a MachinePool that has this providerID.
func (c *Chain) ClustersWith(ctx context.Context, providerID string, names sets.Set[types.NamespacedName]) error {
	if providerID == "" {
		return nil
	}
	machines, err := c.machines(ctx, metav1.NamespaceAll, providerIDField, providerID)
	if err != nil {
		return err
	}
	for i := range machines {
		names.Insert(types.NamespacedName{Namespace: machines[i].Namespace, Name: machines[i].Spec.ClusterName})
	}
	pools, err := c.pools(ctx, metav1.NamespaceAll, providerID)
	if err != nil {
		return err
	}
	for i := range pools {
		names.Insert(types.NamespacedName{Namespace: pools[i].Namespace, Name: pools[i].Spec.ClusterName})
	}
	return nil
}
