// SPDX-License-Identifier: Apache-2.0

package kept

import "sync"

// Recent remembers values that were seen lately, so that an equal one can be replaced by the one that is known. Each value has one
// place, which its hash tells, and the next value with that place takes it over. So the memory has a bound, whatever comes, and what
// many objects have in common stays: it comes again soon (BenchmarkKept in cmd/heirloom/app).
type Recent[V any] struct {
	equal func(a, b V) bool

	mu     sync.Mutex
	places []place[V]
}

type place[V any] struct {
	taken bool
	hash  uint64
	value V
}

// NewRecent returns a Recent that remembers at most that many values.
func NewRecent[V any](places int, equal func(a, b V) bool) *Recent[V] {
	return &Recent[V]{equal: equal, places: make([]place[V], places)}
}

// Same returns an equal value: the one that is known, or this one, which is known from now on.
func (r *Recent[V]) Same(hash uint64, value V) V {
	if known, ok := r.find(hash, value); ok {
		return known
	}
	r.remember(hash, value)
	return value
}

// find returns the known value that equals this one.
func (r *Recent[V]) find(hash uint64, value V) (known V, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.places[hash%uint64(len(r.places))]
	if p.taken && p.hash == hash && r.equal(p.value, value) {
		return p.value, true
	}
	return known, false
}

// remember makes the value a known one.
func (r *Recent[V]) remember(hash uint64, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.places[hash%uint64(len(r.places))] = place[V]{taken: true, hash: hash, value: value}
}
