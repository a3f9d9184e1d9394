// SPDX-License-Identifier: Apache-2.0

// Package pace bounds how fast Nodes get taints that evict Pods. A taint with effect NoExecute that is declared high up
// would otherwise empty every Node below it at once.
package pace

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// gap is how long there is between two questions of Nodes that wait, on average: thousands of them must not keep the
	// loop busy with asking.
	gap = 50 * time.Millisecond
	// share is the part of a set of Nodes that may pass within a minute, as its inverse.
	share = 10
)

// Pacer lets Nodes pass, each only if all that bounds it has room. An N names a Node. It is safe for concurrent use.
type Pacer[N comparable] struct {
	perMinute float64
	now       func() time.Time

	mu sync.Mutex
	// limiters are of those limits below which a Node has passed a short while ago. One that is not here has room.
	limiters map[string]*rate.Limiter
	tallies  map[string]*tally
	turns    map[N]*turn
	waiting  int
}

// Limit bounds the Nodes that are below one object.
type Limit struct {
	// Name names the object.
	Name string
	// PerMinute is how many Nodes may pass in a minute; 0: as many as the pacer's rate says.
	PerMinute float64
}

// turn is that of a Node which waits, or has passed and is not forgotten yet: what it passes for may have to be tried again.
type turn struct {
	about   string
	granted bool
}

// tally counts the Nodes that wait for the same, and those that have passed.
type tally struct {
	Progress
	granted int
	last    time.Time
}

// New returns a pacer that lets so many Nodes a minute pass below each object; all of them at once, if that is 0.
func New[N comparable](perMinute float64, now func() time.Time) *Pacer[N] {
	return &Pacer[N]{
		perMinute: perMinute, now: now,
		limiters: map[string]*rate.Limiter{}, tallies: map[string]*tally{}, turns: map[N]*turn{},
	}
}

// ShareOf is the limit of a set of so many Nodes that do the same work: a tenth of them a minute, and at least one.
func ShareOf(name string, nodes int) Limit {
	return Limit{Name: name, PerMinute: max(1, math.Ceil(float64(nodes)/share))}
}

// Progress is how far those are that wait for the same.
type Progress struct {
	// Passed is how many Nodes have passed since the first had to wait, Waiting how many wait now.
	Passed, Waiting int
}

// Answer says whether a Node may pass now.
type Answer struct {
	OK bool
	// Again is when a Node that may not is to ask again, and HeldBy the limit that takes longest to have room for it, of
	// equals the last.
	Again  time.Duration
	HeldBy string
	Progress
}

// Pass lets a Node pass if each of the limits has room for it, and then takes that of all of them. It counts with those that
// wait for the same.
func (p *Pacer[N]) Pass(node N, about string, limits ...Limit) Answer {
	if p.perMinute <= 0 {
		return Answer{OK: true}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	mine, all := p.enter(node, about, now)
	if mine.granted {
		return Answer{OK: true, Progress: all.Progress}
	}
	if wait, heldBy := p.wait(limits, now); wait > 0 {
		again := max(wait.Round(time.Millisecond), time.Millisecond, time.Duration(p.waiting)*gap)
		return Answer{Again: again, HeldBy: heldBy, Progress: all.Progress}
	}
	for _, limit := range limits {
		p.take(limit, now)
	}
	p.count(all, mine, -1)
	mine.granted = true
	p.count(all, mine, 1)
	all.Passed++
	all.last = now
	return Answer{OK: true, Progress: all.Progress}
}

// Forget says that a Node has nothing to wait for any more: it has passed, it is gone, or its owner has changed its mind.
func (p *Pacer[N]) Forget(node N) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if mine, known := p.turns[node]; known {
		p.count(p.tallies[mine.about], mine, -1)
		delete(p.turns, node)
	}
}

// Waiting returns how many Nodes wait.
func (p *Pacer[N]) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}

// Known returns the Nodes that wait, or have passed and are not forgotten yet.
func (p *Pacer[N]) Known() sets.Set[N] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return sets.KeySet(p.turns)
}

// enter returns the turn of a Node, which waits if it is not known yet, and the tally in which it counts.
func (p *Pacer[N]) enter(node N, about string, now time.Time) (*turn, *tally) {
	mine, known := p.turns[node]
	if known && mine.about == about {
		return mine, p.tallies[about]
	}
	all := p.tallies[about]
	if all == nil {
		p.sweep(now)
		all = &tally{}
		p.tallies[about] = all
	}
	if known {
		p.count(p.tallies[mine.about], mine, -1)
		mine.about = about
	} else {
		mine = &turn{about: about}
		p.turns[node] = mine
	}
	p.count(all, mine, 1)
	return mine, all
}

func (p *Pacer[N]) count(all *tally, mine *turn, one int) {
	if mine.granted {
		all.granted += one
		return
	}
	all.Waiting += one
	p.waiting += one
}

// wait returns how long it takes until all limits have room, and which of them takes longest; of equals it is the last.
func (p *Pacer[N]) wait(limits []Limit, now time.Time) (longest time.Duration, name string) {
	for _, limit := range limits {
		limiter, ok := p.limiters[limit.Name]
		if !ok {
			continue
		}
		limiter.SetLimitAt(now, p.rate(limit)) // a set may have more Nodes by now
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

func (p *Pacer[N]) take(limit Limit, now time.Time) {
	limiter, ok := p.limiters[limit.Name]
	if !ok {
		p.sweep(now)
		limiter = rate.NewLimiter(p.rate(limit), 1)
		p.limiters[limit.Name] = limiter
	}
	limiter.AllowN(now, 1)
}

func (p *Pacer[N]) rate(limit Limit) rate.Limit {
	perMinute := limit.PerMinute
	if perMinute <= 0 {
		perMinute = p.perMinute
	}
	return rate.Limit(perMinute / 60)
}

// sweep forgets limiters that have room again, which are as good as new, and tallies that nothing waits for any more.
func (p *Pacer[N]) sweep(now time.Time) {
	for name, limiter := range p.limiters {
		if limiter.TokensAt(now) >= 1 {
			delete(p.limiters, name)
		}
	}
	over := max(time.Minute, time.Duration(float64(time.Minute)/p.perMinute))
	for about, all := range p.tallies {
		if all.Waiting == 0 && all.granted == 0 && now.Sub(all.last) >= over {
			delete(p.tallies, about)
		}
	}
}
