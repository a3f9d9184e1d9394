// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// NodeGroup returns the object whose Nodes do the same work as a Node of this source, and how many Nodes there are, as far as that
// is known: the Machine's MachineDeployment, control plane, MachinePool, or MachineSet that stands alone; the Machine itself if
// there is none.
func (c *Chain) NodeGroup(ctx context.Context, from inherit.NodeSource) (group inherit.Ref, nodes int, err error) {
	found := c.NodeSources(ctx, from)
	if found.Err != nil {
		return inherit.Ref{}, 0, found.Err
	}
	group = from.Ref
	for _, d := range found.All {
		switch d.Object.(type) {
		case *capi.ClusterClass, *capi.Cluster, *metav1.PartialObjectMetadata: // of the last, no more is known than its name
			continue
		}
		group = d.Ref
		break
	}
	machines, err := c.MachinesBelow(ctx, group.Object)
	if err != nil {
		return inherit.Ref{}, 0, fmt.Errorf("counting the Nodes of %s: %w", group, err)
	}
	for i := range machines {
		if machines[i].Status.NodeRef.Name != "" {
			nodes++
		}
	}
	if mp, ok := group.Object.(*capi.MachinePool); ok {
		nodes = max(nodes, len(mp.Spec.ProviderIDList))
	}
	return group, nodes, nil
}
