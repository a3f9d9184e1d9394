// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// machineHealthCheck is a MachineHealthCheck of a topology.
type machineHealthCheck struct{ *clusterv1.MachineHealthCheck }

func (o machineHealthCheck) content(context.Context, *Chain) (inherit.Object, error) {
	return inherit.OfMachineHealthCheck(o.MachineHealthCheck), nil
}

// evaluate applies rule 15.
func (o machineHealthCheck) evaluate(ctx context.Context, c *Chain, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	section, class, err := c.section(ctx, o.MachineHealthCheck, cluster)
	if err != nil || section == nil {
		return skip(inherit.NothingDeclares), err
	}
	desired, dropped := policy.MachineHealthCheck(*section, o.MachineHealthCheck)
	return inherits(desired, dropped, cluster, class), nil
}

func (o machineHealthCheck) sources(ctx context.Context, c *Chain, _ Decision) inherit.Sources {
	return c.byTopology(ctx, o.MachineHealthCheck, o.MachineHealthCheck)
}

func (o machineHealthCheck) trim() {
	o.Status = clusterv1.MachineHealthCheckStatus{ObservedGeneration: o.Status.ObservedGeneration}
}
