// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/pace"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Declaration says where the taints that a Node inherits are declared, and which Nodes are alike.
type Declaration struct {
	// Set is the Machine's MachineDeployment, control plane, MachinePool, or MachineSet that stands alone; the Machine itself if it
	// has none.
	Set inherit.Ref
	// Nodes is how many Nodes the Set has, as far as that is known.
	Nodes int
	// Class is the ClusterClass if it declares one of the taints.
	Class inherit.Ref
	// Edit is the object where an operator changes the taints. If there are several, it is the one that affects most Nodes.
	Edit inherit.Ref
}

// Declaration returns where these taints of a Node are declared.
func (c *Chain) Declaration(ctx context.Context, from inherit.NodeSource, ids []taint.ID) (*Declaration, error) {
	found := c.NodeSources(ctx, from)
	if found.Err != nil {
		return nil, found.Err
	}
	d, topology := &Declaration{}, inherit.Ref{}
	for _, one := range found.All {
		declares := slices.ContainsFunc(ids, func(id taint.ID) bool { return one.Declares(inherit.TaintEntry(id)) })
		switch one.Object.(type) {
		case *clusterv1.ClusterClass:
			if declares {
				d.Class = one.Ref
			}
		case *clusterv1.Cluster:
			if declares {
				topology = one.Ref
			}
		case *metav1.PartialObjectMetadata: // no more is known than its name
		default:
			if d.Set.Object == nil {
				d.Set = one.Ref
			}
		}
	}
	var err error
	if topology.Object == nil && d.Class.Object == nil {
		if d.Class, err = c.classBehind(ctx, d.Set, from.Cluster); err != nil {
			return nil, err
		}
	}
	d.Edit = cmp.Or(d.Class, topology, d.Set)
	d.Nodes, err = c.nodesIn(ctx, d.Set.Object)
	return d, err
}

// Limits bound how fast the Nodes of the set get these taints, if they evict Pods: the set's own share, its Cluster's rate, and the
// rate of a ClusterClass that declares them in all its Clusters at once.
func (d *Declaration) Limits(cluster types.NamespacedName) []pace.Limit {
	all := []pace.Limit{
		pace.ShareOf(d.Set.String(), d.Nodes),
		{Name: "Cluster " + cluster.String()},
	}
	if d.Class.Object != nil {
		all = append(all, pace.Limit{Name: d.Class.String()})
	}
	return all
}

// classBehind returns the ClusterClass of a control plane that a topology manages: what such a control plane declares beyond its
// section comes from the template that its ClusterClass names.
func (c *Chain) classBehind(ctx context.Context, set inherit.Ref, name types.NamespacedName) (inherit.Ref, error) {
	if _, provided := set.Object.(*unstructured.Unstructured); !provided || !isOfTopology(set.Object) {
		return inherit.Ref{}, nil
	}
	cluster, err := c.Cluster(ctx, name.Namespace, name.Name)
	if err != nil {
		return inherit.Ref{}, err
	}
	class, err := c.ClusterClass(ctx, cluster)
	if err != nil || class == nil {
		return inherit.Ref{}, err
	}
	return inherit.Ref{Kind: "ClusterClass", Object: class}, nil
}

// nodesIn returns how many Nodes the Machines of a set have, or a MachinePool names.
func (c *Chain) nodesIn(ctx context.Context, set client.Object) (int, error) {
	machines, err := c.MachinesBelow(ctx, set)
	if err != nil {
		return 0, fmt.Errorf("counting the Nodes of a set: %w", err)
	}
	nodes := 0
	for i := range machines {
		if machines[i].Status.NodeRef.Name != "" {
			nodes++
		}
	}
	if mp, ok := set.(*clusterv1.MachinePool); ok {
		nodes = max(nodes, len(mp.Spec.ProviderIDList))
	}
	return nodes, nil
}
