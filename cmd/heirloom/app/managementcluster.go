// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
	"github.com/heirloom-dev/heirloom/pkg/resync"
	"github.com/heirloom-dev/heirloom/pkg/selfhosted"
)

// addManagementCluster tells the chain which Cluster is the management cluster itself. It starts the detection and returns it if
// the operator left that to Heirloom, and otherwise returns nil.
func addManagementCluster(mgr ctrl.Manager, c *config.Config, chain *ownerchain.Chain) (resync.ManagementCluster, error) {
	if !c.DetectManagementCluster {
		chain.ManagementCluster = ownerchain.Always(c.ManagementClusterKey)
		return nil, nil
	}
	prover := selfhosted.Prover{Live: mgr.GetAPIReader(), Config: mgr.GetConfig()}
	detector := &selfhosted.Detector{
		Candidates: chain.MayBeManagementCluster, Prove: prover.Prove, Interval: c.SyncPeriod, Now: time.Now,
	}
	if err := mgr.Add(detector); err != nil {
		return nil, fmt.Errorf("adding the search for the management cluster's own Cluster: %w", err)
	}
	chain.ManagementCluster = detector.Cluster
	return detector, nil
}
