// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClusterClass returns the ClusterClass of the Cluster's topology, or nil where there is none. No API call is made for it:
// Cluster API, too, works from its cache here.
func (c *Chain) ClusterClass(ctx context.Context, cluster *clusterv1.Cluster) (*clusterv1.ClusterClass, error) {
	if cluster == nil {
		return nil, nil
	}
	name, declared := ClassOf(cluster)
	if !declared {
		return nil, nil
	}
	class := &clusterv1.ClusterClass{}
	found, err := c.find(ctx, "ClusterClass", name, "", class)
	if !found || err != nil {
		return nil, err
	}
	return class, nil
}

// ClustersOf returns the Clusters whose topology is of the ClusterClass.
func (c *Chain) ClustersOf(ctx context.Context, class client.Object) ([]types.NamespacedName, error) {
	key := client.ObjectKeyFromObject(class).String()
	return Keys(ctx, c, &clusterv1.ClusterList{}, client.MatchingFields{classField: key})
}

// ClassOf returns the name of the ClusterClass of the Cluster's topology, and whether it has a topology. The class is in the
// Cluster's namespace unless the topology says otherwise.
func ClassOf(cluster *clusterv1.Cluster) (types.NamespacedName, bool) {
	topology := &cluster.Spec.Topology
	if !topology.IsDefined() {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: cmp.Or(topology.ClassRef.Namespace, cluster.Namespace), Name: topology.ClassRef.Name}, true
}

func classKey(cluster *clusterv1.Cluster) string {
	name, declared := ClassOf(cluster)
	if !declared {
		return ""
	}
	return name.String()
}
