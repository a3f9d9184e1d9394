// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// parametersEvery is the shortest time between two writes of a policy's parameters. A new Machine must be among them
	// before its Node registers, so it is short.
	parametersEvery = time.Second
	// spacedClusters is how many Clusters' last wake-ups are remembered.
	spacedClusters = 10_000
)

// spacing lets a handler's first request pass at once, and then one per period for everything that happens meanwhile. Failed
// requests are retried as usual.
type spacing struct {
	every time.Duration
	now   func() time.Time

	mu   sync.Mutex // guards get and add as one
	woke *lru.Cache // the last time at which each is or will be woken, a time.Time by reconcile.Request
}

func newSpacing(every time.Duration, now func() time.Time) *spacing {
	return &spacing{every: every, now: now, woke: lru.New(spacedClusters)}
}

// wait returns how long to wait before an event wakes this one, at most a period.
func (s *spacing) wait(one reconcile.Request) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	at := now
	if woke, known := s.woke.Get(one); known {
		last := woke.(time.Time) //nolint:forcetypeassert // nothing else is put there
		switch {
		case last.After(now):
			at = last // it will be woken anyway; the queue keeps one of each
		case now.Sub(last) < s.every:
			at = last.Add(s.every)
		}
	}
	s.woke.Add(one, at)
	return at.Sub(now)
}

// handler returns the handler with space between its requests.
func (s *spacing) handler(of handler.EventHandler) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { of.Create(ctx, e, spacedQueue{q, s}) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { of.Update(ctx, e, spacedQueue{q, s}) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { of.Delete(ctx, e, spacedQueue{q, s}) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { of.Generic(ctx, e, spacedQueue{q, s}) },
	}
}

// spacedQueue adds to a queue with space between.
type spacedQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	spacing *spacing
}

// Add implements workqueue.TypedInterface.
func (q spacedQueue) Add(one reconcile.Request) {
	q.AddAfter(one, q.spacing.wait(one))
}
