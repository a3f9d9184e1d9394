// SPDX-License-Identifier: Apache-2.0

// Package pace bounds how fast Nodes get taints that evict Pods. A taint with effect NoExecute that is declared high up
// would otherwise empty every Node below it at once.
package pace

import (
	"math"
	"sync"
	"time"
)

// share is the part of a set of Nodes that may be tainted within a minute, as its inverse.
const share = 10

// Limit bounds the Nodes that are below one object.
type Limit struct {
	// Name names the object.
	Name string
	// PerMinute is how many Nodes may be tainted in a minute: one each time that this part of a minute is over.
	PerMinute float64
}

// Limits are those of a Node: of its set of so many Nodes that do the same work, a tenth of them a minute and at least one; and of its
// Cluster, at so many Nodes a minute.
func Limits(cluster string, perMinute float64, set string, nodes int) [2]Limit {
	return [2]Limit{{Name: set, PerMinute: max(1, math.Ceil(float64(nodes)/share))}, {Name: cluster, PerMinute: perMinute}}
}

// gap is the time between two Nodes.
func (l Limit) gap() time.Duration {
	return time.Duration(min(float64(time.Minute)/l.PerMinute, math.MaxInt64/2))
}

// Pacer knows which limits have room for a Node. The zero value has room in all of them. It is safe for concurrent use.
type Pacer struct {
	mu sync.Mutex
	// last is when each limit last gave room. A limit that is not here has room.
	last map[string]turn
}

type turn struct {
	at  time.Time
	gap time.Duration
}

// Wait returns how long it takes until both limits have room for one more Node, and the limit that takes longer.
func (p *Pacer) Wait(now time.Time, limits [2]Limit) (longest time.Duration, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wait(now, limits)
}

// Take takes the room of one Node in both limits or, while one has none, in neither. Then it answers as Wait does.
func (p *Pacer) Take(now time.Time, limits [2]Limit) (longest time.Duration, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if longest, name = p.wait(now, limits); longest > 0 {
		return longest, name
	}
	for name, last := range p.last {
		if now.Sub(last.at) >= last.gap {
			delete(p.last, name)
		}
	}
	if p.last == nil {
		p.last = map[string]turn{}
	}
	for _, limit := range limits {
		p.last[limit.Name] = turn{now, limit.gap()}
	}
	return 0, ""
}

// Return gives back the room of a Node that has not been tainted after all.
func (p *Pacer) Return(limits [2]Limit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, limit := range limits {
		delete(p.last, limit.Name)
	}
}

func (p *Pacer) wait(now time.Time, limits [2]Limit) (longest time.Duration, name string) {
	for _, limit := range limits {
		last, known := p.last[limit.Name]
		if wait := last.at.Add(limit.gap()).Sub(now); known && wait > 0 && wait >= longest { // of equals, the Cluster's
			longest, name = wait, limit.Name
		}
	}
	return longest, name
}
