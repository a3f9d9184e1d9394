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
	// retrySpacing is the time between the retries of two requests that find no slot: thousands of them must not keep the loop busy.
	retrySpacing = 2 * time.Millisecond
	// firstAnswer is the time after which requests try again that wait for the first answer of a server. Most servers answer sooner; until
	// a request to a server that hangs is given up, each attempt repeats the rest of its reconcile.
	firstAnswer = 100 * time.Millisecond
	// slowRetry is the first pause after an unanswered request. Each further unanswered request doubles the pause, up to longestPause. It is
	// also the time for which an answer counts: no longer than a request may hang.
	slowRetry    = 5 * time.Second
	longestPause = time.Minute
	// probeCounts is the time for which an answer to a probe of the ClusterCache counts: until the next probe, ten seconds later, has failed.
	probeCounts = 15 * time.Second
	// promptly is the maximum time of an answer that proves a server to be well. A server that answers just in time must not hold many
	// workers.
	promptly = time.Second
	// furtherSlots is the number of slots beyond the first of each key, of all keys together: API servers that stop answering while they have
	// much to do must not occupy all workers either.
	furtherSlots = 64
	// liveNodes is the number of Nodes of a Cluster about which the loop decides from live reads each second, and at once. Each costs a read
	// of its own Machine; many Nodes share the reads of the other owners (owners.Live).
	liveNodes = 100
)

// slots limit the number of workers that may wait for the answers of a workload cluster, or for answers about a kind. A key without a
// recent answer has a single slot, so API servers that hang do not occupy all workers. slots are safe for concurrent use.
type slots[K comparable] struct {
	most int
	// probed returns the time of the last answer to a probe; nil if nobody probes.
	probed func(key K) time.Time

	mu sync.Mutex
	of map[K]*slot
	// further is the number of slots in use beyond the first of each key, next the time of the last retry among the requests that found none.
	further int
	next    time.Time
}

type slot struct {
	running int
	reads   *rate.Limiter
	// nextRead is the time of the last retry among the Nodes that found reads at their limit.
	nextRead time.Time
	// answered is the time of the latest prompt answer, failures the number of pauses since then.
	answered time.Time
	failures int
	// paused is the time until which nothing is sent, next the time of the last retry among the requests that found no slot.
	paused, next time.Time
}

func newSlots[K comparable](most int) *slots[K] {
	return &slots[K]{most: most, of: map[K]*slot{}}
}

// try runs a request in a slot; the request returns sent = false if it sent nothing. Without a free slot, requeueAfter is the time until the
// next attempt.
func (s *slots[K]) try(key K, request func() (sent bool, err error)) (requeueAfter time.Duration, err error) {
	started := time.Now()
	of, requeueAfter := s.take(key, started)
	if requeueAfter > 0 {
		return requeueAfter, nil
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
		of = &slot{reads: rate.NewLimiter(liveNodes, liveNodes)}
		s.of[key] = of
	}
	return of
}

// read counts a live decision. Beyond the limit, requeueAfter is the time until the next attempt.
func (s *slots[K]) read(key K, now time.Time) (requeueAfter time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.slot(key)
	if of.reads.AllowN(now, 1) {
		return 0
	}
	if of.nextRead.Before(now) {
		of.nextRead = now
	}
	of.nextRead = of.nextRead.Add(time.Second / liveNodes)
	return of.nextRead.Sub(now)
}

func (s *slots[K]) take(key K, now time.Time) (of *slot, requeueAfter time.Duration) {
	probed := s.probed != nil && now.Sub(s.probed(key)) < probeCounts // may wait for the key's connection
	s.mu.Lock()
	defer s.mu.Unlock()
	of = s.slot(key)
	most, free := 1, now.Add(firstAnswer)
	if of.failures > 0 {
		free = now.Add(slowRetry)
	} else if now.Sub(of.answered) < slowRetry || probed {
		most, free = s.most, now
	}
	if now.Before(of.paused) {
		most, free = 0, of.paused
	}
	next := &of.next
	switch {
	case of.running > 0 && of.running < most && s.further >= furtherSlots:
		next, free = &s.next, now.Add(firstAnswer)
	case of.running < most:
		if of.running > 0 {
			s.further++
		}
		of.running++
		return of, 0
	}
	if next.Before(free) {
		*next = free
	}
	*next = next.Add(retrySpacing)
	return of, next.Sub(now)
}

func (s *slots[K]) release(of *slot, sent bool, err error, started, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.running--
	if of.running > 0 {
		s.further--
	}
	switch {
	case !sent, unanswered(err) && now.Sub(started) <= promptly: // it proves nothing
	case !unanswered(err):
		if now.Sub(started) <= promptly {
			of.answered, of.failures = now, 0
		}
	case !now.Before(of.paused): // of several concurrent requests, the first pauses the others
		of.paused = now.Add(min(slowRetry<<min(of.failures, 8), longestPause))
		of.failures++
	}
}

// forget drops the slots of a key that is gone.
func (s *slots[K]) forget(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, key)
}

// refused reports whether an error says that an API server has not carried out the request. After any other error, it may have: a
// connection can also break after the write.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest && status.Status().Code < http.StatusInternalServerError
}

// unanswered reports whether an error says that the other side did not answer in time.
func unanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err)
}
