// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"sync"
	"time"

	"k8s.io/utils/lru"
)

// courtesyOfNodes is how long the loop lets Cluster API write a Node first. Cluster API sends a burst of some thirty writes to a workload
// cluster and then twenty a second. It reads the Node before it waits for its turn, so a write of Heirloom in between makes its write a
// conflict. After this time, Heirloom is ahead of all that still wait.
const courtesyOfNodes = 500 * time.Millisecond

// courtesy remembers since when a Node waits for what Cluster API is about to write.
type courtesy struct {
	now func() time.Time

	mu    sync.Mutex // guards get and add as one
	since *lru.Cache // a time.Time by NodeRequest
}

func newCourtesy(now func() time.Time) *courtesy {
	return &courtesy{now: now, since: lru.New(remembered)}
}

// wait returns how long the Node still has to wait.
func (c *courtesy) wait(node NodeRequest) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	since := now
	if known, ok := c.since.Get(node); ok {
		since = known.(time.Time) //nolint:forcetypeassert // nothing else is put there
	} else {
		c.since.Add(node, now)
	}
	return max(0, since.Add(courtesyOfNodes).Sub(now))
}

// forget ends the waiting of a Node.
func (c *courtesy) forget(node NodeRequest) {
	c.since.Remove(node)
}
