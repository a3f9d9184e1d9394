// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// ClusterClass returns the ClusterClass of the Cluster's topology, or nil where there is none. No API call is made for it:
// Cluster API, too, works from its cache here.
func (c *Chain) ClusterClass(ctx context.Context, cluster *capi.Cluster) (*capi.ClusterClass, error) {
	if cluster == nil {
		return nil, nil
	}
	name, declared := ClassOf(cluster)
	if !declared {
		return nil, nil
	}
	class := &capi.ClusterClass{}
	found, err := c.find(ctx, "ClusterClass", name, "", class)
	if !found || err != nil {
		return nil, err
	}
	return class, nil
}

// ClustersOf returns the Clusters whose topology is of the ClusterClass.
func (c *Chain) ClustersOf(ctx context.Context, class client.Object) ([]types.NamespacedName, error) {
	key := client.ObjectKeyFromObject(class).String()
	return Keys(ctx, c, &capi.ClusterList{}, client.MatchingFields{classField: key})
}

// ClassOf returns the name of the ClusterClass of the Cluster's topology, and whether it has a topology. The class is in the
// Cluster's namespace unless the topology says otherwise.
func ClassOf(cluster *capi.Cluster) (types.NamespacedName, bool) {
	topology := cluster.Spec.Topology
	if topology == nil {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{
		Namespace: cmp.Or(topology.ClassRef.Namespace, topology.ClassNamespace, cluster.Namespace),
		Name:      cmp.Or(topology.ClassRef.Name, topology.Class),
	}, true
}

func classKey(cluster *capi.Cluster) string {
	name, declared := ClassOf(cluster)
	if !declared {
		return ""
	}
	return name.String()
}
