// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// Cluster API writes a burst of thirty Nodes of a workload cluster and then twenty a second. It reads a Node before it waits for its
// turn, so a write of the loop in between makes its write a conflict. These are the defaults of its core manager.
const (
	// inHand is how many Nodes of a cluster Cluster API may have read: one by each worker (--machine-concurrency), and the burst. The loop
	// leaves it this many. Most of the others Cluster API has not read yet, so the loop can write them.
	inHand = 100 + 30
	// silenceOfNodes is how long the loop leaves a Node to Cluster API if that writes no Node of the cluster. It takes Cluster API longer
	// than a second to begin if hundreds of Nodes join.
	silenceOfNodes = 2 * time.Second
	// courtesyOfNodes is how long the loop leaves a Node to it after it has written another one of the cluster.
	courtesyOfNodes = 10 * time.Second
	// patienceWithNodes is how long the loop leaves a Node to it altogether. Cluster API writes 1,200 Nodes in that time, in an order that
	// it alone knows.
	patienceWithNodes = time.Minute
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
	end := since.Add(silenceOfNodes)
	if busy := l.written.Add(courtesyOfNodes); busy.After(end) {
		end = busy
	}
	if last := since.Add(patienceWithNodes); end.After(last) {
		end = last
	}
	return max(0, end.Sub(now))
}

// waiting returns how many Nodes may still wait. It forgets those that nobody has asked about for long.
func (l *leftNodes) waiting(now time.Time) int {
	count := 0
	for name, since := range l.since {
		switch waited := now.Sub(since); {
		case waited < patienceWithNodes:
			count++
		case waited > 2*patienceWithNodes:
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

// late reports whether the Node was left to Cluster API, which has not written it in time.
func (c *courtesy) late(node NodeRequest) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.of(node.Cluster)
	if left == nil {
		return false
	}
	since, known := left.since[node.Name]
	return known && left.rest(since, c.now()) == 0
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
