// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// ignored knows which Nodes inherit nothing because somebody has opted out their Machine, MachinePool or Cluster: nobody else
// would tell of one whose taints have been given up.
type ignored struct {
	metrics *metrics.Metrics
	nodes   *roll[NodeRequest]
}

func newIgnored(m *metrics.Metrics) *ignored {
	return &ignored{metrics: m, nodes: newRoll[NodeRequest]()}
}

// see looks at a Node, and at the Machine that it inherits from, which is nil if it inherits nothing.
func (i *ignored) see(ctx context.Context, chain *ownerchain.Chain, node *corev1.Node, inherits bool, req NodeRequest) error {
	if inherits || inherit.Deleting(node) {
		i.set(req, false)
		return nil
	}
	is, err := chain.Ignored(ctx, node)
	if err != nil {
		return err
	}
	i.set(req, is)
	return nil
}

func (i *ignored) set(req NodeRequest, is bool) {
	if was := i.nodes.set(req, is); was != is {
		i.metrics.NodesIgnored(req.Cluster, i.nodes.count(func(other NodeRequest) bool { return other.Cluster == req.Cluster }))
	}
}
