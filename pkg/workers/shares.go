// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// shares bounds how many requests of one cluster are handled at a time, and keeps those that wait for their turn.
type shares[R comparable] struct {
	most    int
	cluster func(R) types.NamespacedName

	mu    sync.Mutex
	taken map[types.NamespacedName]int
	// lines holds waiting requests by cluster; granted holds requests that have waited and whose place is reserved.
	lines   map[types.NamespacedName]*line[R]
	granted sets.Set[R]
}

func newShares[R comparable](most int, cluster func(R) types.NamespacedName) *shares[R] {
	return &shares[R]{
		most: most, cluster: cluster,
		taken: map[types.NamespacedName]int{}, lines: map[types.NamespacedName]*line[R]{}, granted: sets.New[R](),
	}
}

// take reports whether the request may be handled now. Otherwise it waits until give returns it.
func (s *shares[R]) take(request R, priority int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	cluster := s.cluster(request)
	switch {
	case s.granted.Has(request):
		s.granted.Delete(request)
	case s.taken[cluster] < s.most:
		s.taken[cluster]++
	default:
		if s.lines[cluster] == nil {
			s.lines[cluster] = &line[R]{priorities: map[R]int{}, waiting: map[int][]R{}}
		}
		s.lines[cluster].add(request, priority)
		return false
	}
	return true
}

// give says that a request has been handled. If another one of the same cluster waits, it reserves the place and returns it.
func (s *shares[R]) give(request R) (next R, priority int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cluster := s.cluster(request)
	if waiting := s.lines[cluster]; waiting != nil {
		next, priority = waiting.pop()
		if len(waiting.priorities) == 0 {
			delete(s.lines, cluster)
		}
		s.granted.Insert(next)
		return next, priority, true
	}
	if s.taken[cluster]--; s.taken[cluster] == 0 {
		delete(s.taken, cluster)
	}
	return next, 0, false
}

// line holds waiting requests, each once: by priority, and within a priority in order of arrival.
type line[R comparable] struct {
	priorities map[R]int
	// waiting may have a request at a lower priority, too, from before it was raised.
	waiting map[int][]R
}

func (l *line[R]) add(request R, priority int) {
	if before, known := l.priorities[request]; known && before >= priority {
		return
	}
	l.priorities[request] = priority
	l.waiting[priority] = append(l.waiting[priority], request)
}

// pop returns the first. The line must not be empty.
func (l *line[R]) pop() (request R, priority int) {
	for {
		priority = slices.Max(slices.Collect(maps.Keys(l.waiting)))
		request, l.waiting[priority] = l.waiting[priority][0], l.waiting[priority][1:]
		if len(l.waiting[priority]) == 0 {
			delete(l.waiting, priority)
		}
		if now, waits := l.priorities[request]; waits && now == priority {
			delete(l.priorities, request)
			return request, priority
		}
	}
}
