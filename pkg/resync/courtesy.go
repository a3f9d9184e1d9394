// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Cluster API writes a burst of some thirty Nodes of a workload cluster and then twenty a second. It reads a Node before it waits for its
// turn, so a write of the loop in between makes its write a conflict. These are the defaults of its core manager.
const (
	// inHand is how many Nodes of a cluster Cluster API has read at a time (--machine-concurrency). The loop leaves it so many. Beyond
	// them, the loop is in nobody's way, and saves Cluster API the write.
	inHand = 100
	// courtesyOfNodes is how long the loop leaves a Node to Cluster API: as long as that takes for so many.
	courtesyOfNodes = 6 * time.Second
	// quietOfNodes is how long the loop waits while Cluster API writes none of the cluster's Nodes.
	quietOfNodes = time.Second
)

// courtesy remembers which Nodes are left to Cluster API.
type courtesy struct {
	now func() time.Time

	mu       sync.Mutex
	clusters map[types.NamespacedName]*leftNodes
}

// leftNodes are Nodes of one cluster.
type leftNodes struct {
	since map[string]time.Time // by the Node's name
	// progress is when Cluster API was last seen to have written one of them.
	progress time.Time
}

func newCourtesy(now func() time.Time) *courtesy {
	return &courtesy{now: now, clusters: map[types.NamespacedName]*leftNodes{}}
}

// wait returns how long the Node still has to wait.
func (c *courtesy) wait(node NodeRequest) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, left := c.now(), c.clusters[node.Cluster]
	if left == nil {
		left = &leftNodes{since: map[string]time.Time{}}
		c.clusters[node.Cluster] = left
	}
	since, known := left.since[node.Name]
	if !known {
		if left.waiting(now) >= inHand {
			return 0
		}
		since = now
		left.since[node.Name] = now
	}
	until := since.Add(quietOfNodes)
	if last := left.progress.Add(quietOfNodes); last.After(until) {
		until = last
	}
	if most := since.Add(courtesyOfNodes); until.After(most) {
		until = most
	}
	return max(0, until.Sub(now))
}

// waiting returns how many Nodes may still wait. It forgets those that have waited for so long that nobody asks about them.
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

// written ends the waiting of a Node that no longer has to be left to Cluster API, because it has been written.
func (c *courtesy) written(node NodeRequest) {
	c.end(node, true)
}

// forget ends the waiting of a Node.
func (c *courtesy) forget(node NodeRequest) {
	c.end(node, false)
}

func (c *courtesy) end(node NodeRequest, progress bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.clusters[node.Cluster]
	if left == nil {
		return
	}
	if _, known := left.since[node.Name]; !known {
		return
	}
	delete(left.since, node.Name)
	if progress {
		left.progress = c.now()
	}
	if len(left.since) == 0 {
		delete(c.clusters, node.Cluster)
	}
}
