// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// busyRetry is how soon a request is tried again that found no slot.
	busyRetry = 50 * time.Millisecond
	// slowRetry is the same while the API server does not answer, and the first pause after an unanswered request. Each
	// further one doubles the pause, up to longestPause.
	slowRetry    = 5 * time.Second
	longestPause = time.Minute
)

// slots bound how many workers each workload cluster, or each kind of a provider, may occupy. What has not answered yet, or not
// in time, has one slot. So any number of API servers may hang, and the others find workers. It is safe for concurrent use.
type slots[K comparable] struct {
	most int

	mu sync.Mutex
	of map[K]*slot
}

type slot struct {
	running int
	// answers says that the latest request was answered, failures how many before it were not.
	answers  bool
	failures int
	// paused is until when nothing is sent.
	paused time.Time
}

func newSlots[K comparable](most int) *slots[K] {
	return &slots[K]{most: most, of: map[K]*slot{}}
}

// try does the work in a slot and returns what the work returns. Without a free slot it returns when to try again.
func (s *slots[K]) try(key K, work func() (time.Duration, error)) (again time.Duration, err error) {
	if again := s.take(key, time.Now()); again > 0 {
		return again, nil
	}
	answered := false
	defer func() { s.release(key, answered, time.Now()) }()
	again, err = work()
	answered = !unanswered(err)
	return again, err
}

func (s *slots[K]) take(key K, now time.Time) (again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of[key]
	if of == nil {
		of = &slot{}
		s.of[key] = of
	}
	switch {
	case now.Before(of.paused):
		return of.paused.Sub(now)
	case of.failures > 0 && of.running > 0:
		return wait.Jitter(slowRetry, 1)
	case of.running >= s.most, !of.answers && of.running > 0:
		return wait.Jitter(busyRetry, 1)
	}
	of.running++
	return 0
}

func (s *slots[K]) release(key K, answered bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of[key]
	if of == nil {
		return
	}
	of.running--
	of.answers = answered
	if answered {
		of.failures = 0
		return
	}
	of.paused = now.Add(min(slowRetry<<min(of.failures, 8), longestPause))
	of.failures++
}

// forget forgets a key that is gone.
func (s *slots[K]) forget(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, key)
}

// unanswered reports whether an error says that the other side did not answer in time.
func unanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err)
}
