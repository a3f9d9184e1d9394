// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// turn is the time between two of those that find no slot: thousands of them must not keep the loop busy with asking.
	turn = 2 * time.Millisecond
	// slowRetry is the first pause after an unanswered request. Each further one doubles the pause, up to longestPause. It is also how long
	// an answer counts: no longer than a request may hang.
	slowRetry    = 5 * time.Second
	longestPause = time.Minute
	// promptly is how long an answer may take that proves a server to be well. Who answers just in time must not hold many workers.
	promptly = time.Second
	// liveReads is how many live reads a second, and at once, the Nodes of a Cluster may cause. Beyond that, the cache decides.
	liveReads = 200
)

// slots bound how many workers may wait for the answers of a workload cluster, or for answers about a kind. Whatever has answered
// no request lately has one slot, so any number of API servers may hang, and the others find workers. It is safe for concurrent use.
type slots[K comparable] struct {
	most int

	mu sync.Mutex
	of map[K]*slot
}

type slot struct {
	running int
	reads   *rate.Limiter
	// answered is when the latest request was answered promptly, failures how many since then were not answered.
	answered time.Time
	failures int
	// paused is until when nothing is sent, next when the last of those is to come again that found no slot.
	paused, next time.Time
}

func newSlots[K comparable](most int) *slots[K] {
	return &slots[K]{most: most, of: map[K]*slot{}}
}

// try makes a request in a slot; sent is false if it turned out not to be needed. Without a free slot, nothing is sent, and again is
// when to try again.
func (s *slots[K]) try(key K, request func() (sent bool, err error)) (again time.Duration, err error) {
	started := time.Now()
	of, again := s.take(key, started)
	if again > 0 {
		return again, nil
	}
	sent := false
	defer func() { s.release(of, sent, err, started, time.Now()) }()
	sent, err = request()
	return 0, err
}

// slot returns the slots of a key.
func (s *slots[K]) slot(key K) *slot {
	of := s.of[key]
	if of == nil {
		of = &slot{reads: rate.NewLimiter(liveReads, liveReads)}
		s.of[key] = of
	}
	return of
}

// reads limits the live reads for a key.
func (s *slots[K]) reads(key K) *rate.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slot(key).reads
}

func (s *slots[K]) take(key K, now time.Time) (of *slot, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of = s.slot(key)
	most, free := 1, now
	if of.failures > 0 {
		free = now.Add(slowRetry)
	} else if now.Sub(of.answered) < slowRetry {
		most = s.most
	}
	if now.Before(of.paused) {
		most, free = 0, of.paused
	}
	if of.running < most {
		of.running++
		return of, 0
	}
	if of.next.Before(free) {
		of.next = free
	}
	of.next = of.next.Add(turn)
	return of, of.next.Sub(now)
}

func (s *slots[K]) release(of *slot, sent bool, err error, started, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.running--
	switch {
	case !sent: // it proves nothing
	case !unanswered(err):
		if now.Sub(started) <= promptly {
			of.answered, of.failures = now, 0
		}
	case !now.Before(of.paused): // of several requests at a time, one pauses the others
		of.paused = now.Add(min(slowRetry<<min(of.failures, 8), longestPause))
		of.failures++
	}
}

// forget forgets a key that is gone.
func (s *slots[K]) forget(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, key)
}

// refused reports whether an error is an API server's word that it has not done what it was asked for. With any other error it may have:
// a connection breaks after the write, too.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest && status.Status().Code < http.StatusInternalServerError
}

// unanswered reports whether an error says that the other side did not answer in time.
func unanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err)
}
