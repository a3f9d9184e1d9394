// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// sharedReads is how many reads a second, and at once, all workload clusters together may cost the management cluster's API
	// server. Cluster API writes at most 20 Nodes a second and workload cluster; more than this is somebody else's doing.
	sharedReads = 100
	// ownReads is how many each workload cluster may cost besides, whatever the others do.
	ownReads = 20
	// rememberedClusters is for how many workload clusters at a time that is known.
	rememberedClusters = 10_000
)

// limitedReader refuses what is too much. What reads with it has a cache to fall back on. A workload cluster that asks without
// end uses up what all share, but not what another has for itself.
type limitedReader struct {
	client.Reader
	shared *rate.Limiter
	// newOwn makes the limiter of one more Cluster.
	newOwn func() *rate.Limiter

	mu  sync.Mutex // guards get and add as one
	own *lru.Cache // a *rate.Limiter for each Cluster, by types.NamespacedName
}

func newLimitedReader(reader client.Reader) *limitedReader {
	return &limitedReader{
		Reader: reader, shared: rate.NewLimiter(sharedReads, sharedReads), own: lru.New(rememberedClusters),
		newOwn: func() *rate.Limiter { return rate.NewLimiter(ownReads, ownReads) },
	}
}

// Get implements client.Reader.
func (r *limitedReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	cluster, _ := callerOf(ctx)
	if !r.ownOf(cluster).Allow() && !r.shared.Allow() {
		return errors.New("too many reads for workload clusters")
	}
	return r.Reader.Get(ctx, key, object, options...)
}

func (r *limitedReader) ownOf(cluster types.NamespacedName) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.own.Get(cluster); ok {
		return known.(*rate.Limiter) //nolint:forcetypeassert // nothing else is put there
	}
	limiter := r.newOwn()
	r.own.Add(cluster, limiter)
	return limiter
}
