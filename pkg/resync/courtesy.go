// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// Cluster API writes a burst of some thirty Nodes of a workload cluster and then twenty a second. It reads a Node before it waits for its
// turn, so a write of the loop in between makes its write a conflict. These are the defaults of its core manager.
const (
	// inHand is how many Nodes of a cluster Cluster API has read at a time (--machine-concurrency). The loop leaves it this many.
	// Cluster API has not read the others yet, so the loop can write them.
	inHand = 100
	// courtesyOfNodes is how long the loop leaves a Node to Cluster API if that has written another one of the cluster within that time.
	courtesyOfNodes = 10 * time.Second
	// silenceOfNodes is how long the loop leaves a Node to it otherwise.
	silenceOfNodes = time.Second
	// rememberedClusters is how many clusters are remembered. For the others the time begins anew.
	rememberedClusters = 10_000
)

// courtesy remembers which Nodes are left to Cluster API.
type courtesy struct {
	now func() time.Time

	mu       sync.Mutex // guards the entries, too
	clusters *lru.Cache // *leftNodes by the cluster's name
}

// leftNodes are Nodes of one cluster.
type leftNodes struct {
	since map[string]time.Time // by the Node's name
	// written is when Cluster API was last seen to have written one of them.
	written time.Time
}

func newCourtesy(now func() time.Time) *courtesy {
	return &courtesy{now: now, clusters: lru.New(rememberedClusters)}
}

// wait returns how long the Node still has to wait.
func (c *courtesy) wait(node NodeRequest) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, left := c.now(), c.of(node.Cluster)
	if left == nil {
		left = &leftNodes{since: map[string]time.Time{}}
		c.clusters.Add(node.Cluster, left)
	}
	since, known := left.since[node.Name]
	if !known {
		if left.waiting(now) >= inHand {
			return 0
		}
		since = now
		left.since[node.Name] = now
	}
	return left.rest(since, now)
}

// rest returns how long a Node still has to wait that waits since then.
func (l *leftNodes) rest(since, now time.Time) time.Duration {
	patience := silenceOfNodes
	if !l.written.IsZero() && now.Sub(l.written) < courtesyOfNodes {
		patience = courtesyOfNodes
	}
	return max(0, since.Add(patience).Sub(now))
}

// waiting returns how many Nodes may still wait. It forgets those that nobody has asked about for long.
func (l *leftNodes) waiting(now time.Time) int {
	count := 0
	for name, since := range l.since {
		switch waited := now.Sub(since); {
		case waited < courtesyOfNodes:
			count++
		case waited > 10*courtesyOfNodes:
			delete(l.since, name)
		}
	}
	return count
}

// written ends the waiting of a Node that no longer has to be left to Cluster API. If its time is not over, Cluster API has written it.
func (c *courtesy) written(node NodeRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.of(node.Cluster)
	if left == nil {
		return
	}
	now := c.now()
	if since, known := left.since[node.Name]; known && left.rest(since, now) > 0 {
		left.written = now
		delete(left.since, node.Name)
	}
}

// forget ends the waiting of a Node.
func (c *courtesy) forget(node NodeRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := c.of(node.Cluster); left != nil {
		delete(left.since, node.Name)
	}
}

func (c *courtesy) of(cluster types.NamespacedName) *leftNodes {
	known, _ := c.clusters.Get(cluster)
	left, _ := known.(*leftNodes)
	return left
}
