// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// sharedReads is how many reads a second, and at once, all workload clusters together may cause on the management cluster's API
	// server. Cluster API writes at most 20 Nodes a second and workload cluster; more must come from another client.
	sharedReads = 100
	// ownReads is how many reads each workload cluster may cause besides, independently of the others.
	ownReads = 20
	// rememberedClusters is how many workload clusters have a limiter of their own at a time.
	rememberedClusters = 10_000
)

// reads limits the reads that workload clusters cause. One that asks without end uses up the shared reads, but not another's own.
type reads struct {
	shared *rate.Limiter
	// newOwn makes the limiter of one more Cluster.
	newOwn func() *rate.Limiter

	mu  sync.Mutex // guards get and add as one
	own *lru.Cache // a *rate.Limiter for each Cluster, by types.NamespacedName
}

func newReads() *reads {
	return &reads{
		shared: rate.NewLimiter(sharedReads, sharedReads), own: lru.New(rememberedClusters),
		newOwn: func() *rate.Limiter { return rate.NewLimiter(ownReads, ownReads) },
	}
}

// allow reports whether the caller may cost one more read.
func (r *reads) allow(ctx context.Context) bool {
	cluster, _ := callerOf(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	own, ok := r.own.Get(cluster)
	if !ok {
		own = r.newOwn()
		r.own.Add(cluster, own)
	}
	return own.(*rate.Limiter).Allow() || r.shared.Allow() //nolint:forcetypeassert // nothing else is put there
}
