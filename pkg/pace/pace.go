// SPDX-License-Identifier: Apache-2.0

// Package pace bounds how fast Nodes get taints that evict Pods. A taint with effect NoExecute that is declared high up
// would otherwise empty every Node below it at once.
package pace

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Pacer lets Nodes pass at a rate of its own for each group, which is the Nodes of one MachineDeployment, control plane or
// MachinePool. An N names a Node. It is safe for concurrent use.
type Pacer[N comparable] struct {
	perMinute float64
	now       func() time.Time

	mu     sync.Mutex
	groups map[string]*group[N]
}

type group[N comparable] struct {
	limiter *rate.Limiter
	waiting sets.Set[N]
	// granted are those that have passed and not been forgotten yet: what they pass for may have to be tried again.
	granted sets.Set[N]
	passed  int
}

// New returns a pacer that lets so many Nodes a minute pass in each group; all of them at once, if that is 0.
func New[N comparable](perMinute float64, now func() time.Time) *Pacer[N] {
	return &Pacer[N]{perMinute: perMinute, now: now, groups: map[string]*group[N]{}}
}

// Progress is how far a group is.
type Progress struct {
	// Passed is how many Nodes have passed since the first had to wait, Waiting how many wait now.
	Passed, Waiting int
}

// Pass reports whether a Node may pass now, and if not, when it is to ask again.
func (p *Pacer[N]) Pass(name string, node N) (ok bool, again time.Duration, progress Progress) {
	if p.perMinute <= 0 {
		return true, 0, Progress{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g, known := p.groups[name]
	if !known {
		g = &group[N]{limiter: rate.NewLimiter(rate.Limit(p.perMinute/60), 1), waiting: sets.New[N](), granted: sets.New[N]()}
		p.groups[name] = g
	}
	if g.granted.Has(node) {
		return true, 0, g.progress()
	}
	if !g.limiter.AllowN(p.now(), 1) {
		g.waiting.Insert(node)
		return false, time.Duration(float64(time.Minute) / p.perMinute), g.progress()
	}
	g.passed++
	g.granted.Insert(node)
	g.waiting.Delete(node)
	return true, 0, g.progress()
}

// Forget says that a Node has nothing to wait for any more: it has passed, it is gone, or its owner has changed its mind.
func (p *Pacer[N]) Forget(node N) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, g := range p.groups {
		g.waiting.Delete(node)
		g.granted.Delete(node)
		// The limiter is kept for as long as it could hold a Node back.
		if g.waiting.Len() == 0 && g.granted.Len() == 0 && g.limiter.TokensAt(p.now()) >= 1 {
			delete(p.groups, name)
		}
	}
}

// Waiting returns how many Nodes wait in all groups.
func (p *Pacer[N]) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := 0
	for _, g := range p.groups {
		waiting += g.waiting.Len()
	}
	return waiting
}

// Known returns the Nodes that wait, or have passed and are not forgotten yet.
func (p *Pacer[N]) Known() sets.Set[N] {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := sets.New[N]()
	for _, g := range p.groups {
		known = known.Union(g.waiting).Union(g.granted)
	}
	return known
}

func (g *group[N]) progress() Progress {
	return Progress{Passed: g.passed, Waiting: g.waiting.Len()}
}
