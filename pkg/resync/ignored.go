// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"github.com/heirloom-dev/heirloom/pkg/metrics"
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

func (i *ignored) set(req NodeRequest, is bool) {
	if was := i.nodes.set(req, is); was != is {
		i.metrics.NodesIgnored(req.Cluster, i.nodes.count(func(other NodeRequest) bool { return other.Cluster == req.Cluster }))
	}
}
