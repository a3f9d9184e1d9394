// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"sync"
)

// share bounds how many workers one cluster or one kind may occupy, so that one which does not answer keeps only its own
// objects waiting.
type share[K comparable] struct {
	most int

	mu    sync.Mutex
	taken map[K]int
}

func newShare[K comparable](most int) *share[K] {
	return &share[K]{most: most, taken: map[K]int{}}
}

// take reports whether this one may have one more worker, and gives it one if so.
func (s *share[K]) take(one K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[one] >= s.most {
		return false
	}
	s.taken[one]++
	return true
}

func (s *share[K]) give(one K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[one]--; s.taken[one] == 0 {
		delete(s.taken, one)
	}
}
