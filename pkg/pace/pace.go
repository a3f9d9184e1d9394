// SPDX-License-Identifier: Apache-2.0

// Package pace bounds how fast Nodes get taints that evict Pods. A taint with effect NoExecute that is declared high up
// would otherwise empty every Node below it at once.
package pace

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// share is the part of a set of Nodes that may be tainted within a minute, as its inverse.
const share = 10

// Limit bounds the Nodes that are below one object.
type Limit struct {
	// Name names the object.
	Name string
	// PerMinute is how many Nodes may be tainted in a minute.
	PerMinute float64
}

// Limits are those of a Node: of its Cluster, at so many Nodes a minute, and of its set of so many Nodes that do the same work, a
// tenth of them a minute and at least one.
func Limits(cluster string, perMinute float64, set string, nodes int) [2]Limit {
	return [2]Limit{{Name: set, PerMinute: max(1, math.Ceil(float64(nodes)/share))}, {Name: cluster, PerMinute: perMinute}}
}

// Pacer knows how much room each limit has. The zero value has room for one Node in each. It is safe for concurrent use.
type Pacer struct {
	mu sync.Mutex
	// limiters are those of limits without room. A limit that is not here has room.
	limiters map[string]*rate.Limiter
}

// Wait returns how long it takes until both limits have room for one more Node, and the limit that takes longer.
func (p *Pacer) Wait(now time.Time, limits [2]Limit) (longest time.Duration, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wait(now, limits)
}

// Take takes the room of one Node in both limits, or in none, and reports whether there was room.
func (p *Pacer) Take(now time.Time, limits [2]Limit) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait, _ := p.wait(now, limits); wait > 0 {
		return false
	}
	for name, limiter := range p.limiters {
		if limiter.TokensAt(now) >= 1 {
			delete(p.limiters, name)
		}
	}
	if p.limiters == nil {
		p.limiters = map[string]*rate.Limiter{}
	}
	for _, limit := range limits {
		p.limiters[limit.Name] = rate.NewLimiter(rate.Limit(limit.PerMinute/60), 1)
		p.limiters[limit.Name].AllowN(now, 1)
	}
	return true
}

func (p *Pacer) wait(now time.Time, limits [2]Limit) (longest time.Duration, name string) {
	for _, limit := range limits {
		limiter, ok := p.limiters[limit.Name]
		if !ok {
			continue
		}
		limiter.SetLimitAt(now, rate.Limit(limit.PerMinute/60)) // a set may have more Nodes by now
		if missing := 1 - limiter.TokensAt(now); missing > 0 {
			// Also the least bit that is missing takes a while.
			wait := max(time.Nanosecond, time.Duration(missing/float64(limiter.Limit())*float64(time.Second)))
			if wait >= longest {
				longest, name = wait, limit.Name
			}
		}
	}
	return longest, name
}

// Group are so many Nodes with the same limits.
type Group struct {
	Limits [2]Limit
	Nodes  int
}

// Forecast returns how long it takes until the last of these Nodes is tainted. It counts on all limits having room now, and on each
// Node asking as soon as there is room for it.
func Forecast(groups ...Group) time.Duration {
	start := time.Time{}
	now, p := start, &Pacer{}
	left := make([]int, len(groups))
	for i, group := range groups {
		left[i] = group.Nodes
	}
	for {
		next := time.Duration(math.MaxInt64)
		for i, group := range groups {
			for left[i] > 0 && p.Take(now, group.Limits) {
				left[i]--
			}
			if left[i] > 0 {
				wait, _ := p.Wait(now, group.Limits)
				next = min(next, wait)
			}
		}
		if next == math.MaxInt64 {
			return now.Sub(start)
		}
		now = now.Add(next)
	}
}
