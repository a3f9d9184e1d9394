// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"sync"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// queue is a controller's queue that hands out no more requests of one cluster than its share, and counts workers.
type queue[R comparable] struct {
	priorityqueue.PriorityQueue[R]
	// shares is nil if each request is about a different cluster.
	shares *shares[R]
	// busy is how many workers have a request, and taken gets something whenever one takes it.
	busy  atomic.Int64
	taken chan struct{}
	// down makes shutting down idempotent, because each group of workers shuts down the queue that they share.
	down sync.Once
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *queue[R]) GetWithPriority() (request R, priority int, shutdown bool) {
	for {
		request, priority, shutdown = q.PriorityQueue.GetWithPriority()
		if shutdown {
			return request, priority, true
		}
		if q.shares == nil || q.shares.take(request, priority) {
			break
		}
		q.PriorityQueue.Done(request) // from now on it waits in its cluster's line
	}
	q.busy.Add(1)
	select {
	case q.taken <- struct{}{}:
	default: // one is already waiting to be read
	}
	return request, priority, false
}

// Get implements workqueue.TypedInterface.
func (q *queue[R]) Get() (request R, shutdown bool) {
	request, _, shutdown = q.GetWithPriority()
	return request, shutdown
}

// Done implements workqueue.TypedInterface.
func (q *queue[R]) Done(request R) {
	q.busy.Add(-1)
	q.PriorityQueue.Done(request)
	if q.shares == nil {
		return
	}
	if next, priority, ok := q.shares.give(request); ok {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, next)
	}
}

// ShutDown implements workqueue.TypedInterface.
func (q *queue[R]) ShutDown() { q.down.Do(q.PriorityQueue.ShutDown) }

// ShutDownWithDrain implements workqueue.TypedInterface.
func (q *queue[R]) ShutDownWithDrain() { q.ShutDown() }
