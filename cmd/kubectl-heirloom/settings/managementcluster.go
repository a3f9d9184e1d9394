// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/selfhosted"
)

// FindManagementCluster finds out which Cluster is the management cluster itself, as the server does with
// --management-cluster=auto. What cannot be found out becomes a note.
func (s *Settings) FindManagementCluster(
	ctx context.Context, candidates func(context.Context) ([]*clusterv1.Cluster, error),
	prove func(context.Context, types.NamespacedName) (bool, error),
) error {
	if !s.Config.DetectManagementCluster {
		return nil
	}
	found, err := candidates(ctx)
	if apierrors.IsForbidden(err) {
		s.note("Which Cluster is the management cluster itself is unknown, because you may not list what tells it (%v): "+
			"if there is one, give it with --management-cluster.", errors.Unwrap(err))
		return nil
	}
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(cluster *clusterv1.Cluster) bool {
		return s.Config.Namespace != "" && s.Config.Namespace != cluster.Namespace // the server does not see it
	})
	var mu sync.Mutex
	var unproved []string
	detector := selfhosted.Detector{
		Candidates: func(context.Context) ([]*clusterv1.Cluster, error) { return found, nil },
		Prove: func(ctx context.Context, cluster types.NamespacedName) (bool, error) {
			is, err := prove(ctx, cluster)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				unproved = append(unproved, cluster.String()+": "+err.Error())
			}
			return is, nil
		},
		Now: time.Now,
	}
	if err := detector.Detect(ctx); err != nil {
		return err
	}
	s.Config.ManagementClusterKey = detector.Cluster()
	switch claims := detector.Claims(); {
	case len(claims) > 1:
		s.note("Several Clusters seem to be the management cluster itself (%s and %s), so that its Nodes inherit nothing: "+
			"choose one with --management-cluster.", claims[0], claims[1])
	case len(claims) == 0 && len(unproved) > 0:
		slices.Sort(unproved)
		s.note("Whether a Cluster is the management cluster itself is unknown (%s): if one is, give it with --management-cluster.",
			strings.Join(unproved, "; "))
	}
	return nil
}
