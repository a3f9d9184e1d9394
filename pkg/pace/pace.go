// SPDX-License-Identifier: Apache-2.0

// Package pace limits the rate at which Nodes get taints that evict Pods. Otherwise, a taint with effect NoExecute that is declared high
// in the owner chain would empty all Nodes below at once.
package pace

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// share is the inverse of the part of a set of Nodes that may be tainted within a minute.
const share = 10

// Limit is the rate limit of the Nodes below an object.
type Limit struct {
	// Name names the object.
	Name string
	// PerMinute is the number of Nodes that may be tainted in a minute, at equal intervals.
	PerMinute float64
}

// Limits returns the limits of a Node: in its set (the nodes that do the same work), a tenth of them a minute and at least 1; in its
// Cluster, perMinute Nodes a minute.
func Limits(cluster string, perMinute float64, set string, nodes int) [2]Limit {
	return [2]Limit{{Name: set, PerMinute: max(1, math.Ceil(float64(nodes)/share))}, {Name: cluster, PerMinute: perMinute}}
}

// gap is the time between the turns of two Nodes.
func (l Limit) gap() time.Duration {
	return time.Duration(min(float64(time.Minute)/l.PerMinute, math.MaxInt64/2))
}

// Pacer gives turns to Nodes within their limits. The zero value has given no turn. It is safe for concurrent use.
type Pacer struct {
	mu sync.Mutex
	// last holds the last turn in each limit, by the limit's name. In a limit that is missing here, the next turn is now.
	last map[string]turn
}

type turn struct {
	at  time.Time
	gap time.Duration
}

// Wait returns the time until a Node can have its turn in both limits, and the name of the limit with the longer wait.
func (p *Pacer) Wait(now time.Time, limits [2]Limit) (longest time.Duration, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wait(now, limits)
}

// Take takes a turn for a Node in both limits. If a limit has no turn now, it takes none and returns the time until the next.
func (p *Pacer) Take(now time.Time, limits [2]Limit) (reservation Reservation, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait, _ = p.wait(now, limits); wait > 0 {
		return Reservation{}, wait
	}
	maps.DeleteFunc(p.last, func(_ string, last turn) bool { return now.Sub(last.at) >= last.gap })
	if p.last == nil {
		p.last = map[string]turn{}
	}
	for _, limit := range limits {
		p.last[limit.Name] = turn{now, limit.gap()}
	}
	return Reservation{p, limits, now}, 0
}

// Reservation is the turn of a Node in both limits. The zero value is no turn.
type Reservation struct {
	pacer  *Pacer
	limits [2]Limit
	at     time.Time
}

// Cancel gives back the turn of a Node that was not tainted, but not the later turn of another Node.
func (r Reservation) Cancel() {
	if r.pacer == nil {
		return
	}
	r.pacer.mu.Lock()
	defer r.pacer.mu.Unlock()
	for _, limit := range r.limits {
		if r.pacer.last[limit.Name].at.Equal(r.at) {
			delete(r.pacer.last, limit.Name)
		}
	}
}

func (p *Pacer) wait(now time.Time, limits [2]Limit) (longest time.Duration, name string) {
	for _, limit := range limits {
		last, known := p.last[limit.Name]
		if wait := last.at.Add(limit.gap()).Sub(now); known && wait > 0 && wait >= longest { // equal waits: the Cluster's
			longest, name = wait, limit.Name
		}
	}
	return longest, name
}

// LastTurn returns the time until the last of the waiting Nodes has its turn. It assumes that all limits have room now, and that each Node
// asks as soon as there is room for it.
func LastTurn(waiting map[[2]Limit]int) time.Duration {
	start, pacer := time.Time{}, &Pacer{}
	sets := slices.SortedFunc(maps.Keys(waiting), func(a, b [2]Limit) int {
		return cmp.Or(cmp.Compare(waiting[b], waiting[a]), cmp.Compare(a[0].Name, b[0].Name)) // the largest first
	})
	now, left := start, maps.Clone(waiting)
	for next := time.Duration(0); next < math.MaxInt64; {
		now, next = now.Add(next), math.MaxInt64
		for _, limits := range sets {
			for left[limits] > 0 {
				if _, longest := pacer.Take(now, limits); longest > 0 {
					next = min(next, longest)
					break
				}
				left[limits]--
			}
		}
	}
	return now.Sub(start)
}
