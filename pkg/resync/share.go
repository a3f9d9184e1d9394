// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// share bounds how many workers one kind may occupy, so that one whose writes nobody answers keeps only its own objects waiting.
type share struct {
	most int

	mu    sync.Mutex
	taken map[schema.GroupKind]int
}

func newShare(most int) *share {
	return &share{most: most, taken: map[schema.GroupKind]int{}}
}

// take reports whether this one may have one more worker, and gives it one if so.
func (s *share) take(one schema.GroupKind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[one] >= s.most {
		return false
	}
	s.taken[one]++
	return true
}

func (s *share) give(one schema.GroupKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[one]--; s.taken[one] == 0 {
		delete(s.taken, one)
	}
}
