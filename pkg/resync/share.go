// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// share bounds how many workers one cluster may occupy, so that one which does not answer keeps only its own Nodes
// waiting.
type share struct {
	most int

	mu    sync.Mutex
	taken map[types.NamespacedName]int
}

func newShare(most int) *share {
	return &share{most: most, taken: map[types.NamespacedName]int{}}
}

// take reports whether the cluster may have one more worker, and gives it one if so.
func (s *share) take(cluster types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[cluster] >= s.most {
		return false
	}
	s.taken[cluster]++
	return true
}

func (s *share) give(cluster types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[cluster]--; s.taken[cluster] == 0 {
		delete(s.taken, cluster)
	}
}
