// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Pool is the workers of one controller, whose requests an R names.
type Pool[R comparable] struct {
	name string
	// first is how many workers there are to begin with, patience how long all may be busy before there are more.
	first    int
	patience time.Duration
	log      func(base logr.Logger, request *R) logr.Logger

	queue      *queue[R]
	controller controller.TypedController[R]
	base       logr.Logger
}

// ForClusters returns the workers of a controller whose requests name Clusters, so that each cluster has one worker at most.
// There are first workers to begin with, and their number doubles whenever all have been busy for as long as patience.
func ForClusters(name string, first int, patience time.Duration) *Pool[ctrl.Request] {
	return &Pool[ctrl.Request]{
		name: name, first: first, patience: patience, queue: &queue[ctrl.Request]{taken: make(chan struct{}, 1)},
		log: func(base logr.Logger, request *ctrl.Request) logr.Logger {
			base = base.WithValues("controller", name)
			if request == nil {
				return base
			}
			return base.WithValues("Cluster", klog.KRef(request.Namespace, request.Name))
		},
	}
}

// Shared returns the workers of a controller whose requests are about the cluster that the function returns. At most share
// requests of one cluster are handled at a time. There are first workers to begin with, and their number doubles whenever all
// are busy.
func Shared[R comparable](
	name string, first, share int, cluster func(R) types.NamespacedName, log func(base logr.Logger, request *R) logr.Logger,
) *Pool[R] {
	return &Pool[R]{
		name: name, first: first, queue: &queue[R]{taken: make(chan struct{}, 1), shares: newShares(share, cluster)}, log: log,
	}
}

// Options returns the options that make a controller use these workers. Serve must follow.
func (p *Pool[R]) Options() controller.TypedOptions[R] {
	return controller.TypedOptions[R]{MaxConcurrentReconciles: p.first, NewQueue: p.open}
}

// open makes the queue. It starts goroutines, so controllers do that only once they run.
func (p *Pool[R]) open(name string, limiter workqueue.TypedRateLimiter[R]) workqueue.TypedRateLimitingInterface[R] {
	p.queue.PriorityQueue = priorityqueue.New(name, func(o *priorityqueue.Opts[R]) {
		o.Log, o.RateLimiter = p.log(p.base, nil), limiter
	})
	return p.queue
}

// Serve adds to the manager what starts more workers for the controller.
func (p *Pool[R]) Serve(mgr manager.Manager, c controller.TypedController[R]) error {
	p.controller, p.base = c, mgr.GetLogger()
	if err := mgr.Add(p); err != nil {
		return fmt.Errorf("adding the workers of the %s controller: %w", p.name, err)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Pool[R]) NeedLeaderElection() bool { return true }

// Start starts more workers, as often as all are busy, until ctx is done. They are controllers with the same queue, because
// that is the only way to have more of them; in metrics they are <name>-2, <name>-3 and so on.
func (p *Pool[R]) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	workers := p.first
	for n := 2; p.allBusy(ctx, workers); n++ {
		more, err := controller.NewTypedUnmanaged(fmt.Sprintf("%s-%d", p.name, n), controller.TypedOptions[R]{
			Reconciler: p.controller, MaxConcurrentReconciles: workers, SkipNameValidation: ptr.To(true),
			LogConstructor: func(request *R) logr.Logger { return p.log(p.base, request) },
			NewQueue: func(string, workqueue.TypedRateLimiter[R]) workqueue.TypedRateLimitingInterface[R] {
				return p.queue
			},
		})
		if err != nil {
			return fmt.Errorf("making more workers for the %s controller: %w", p.name, err)
		}
		running.Go(func() {
			if err := more.Start(ctx); err != nil {
				p.log(p.base, nil).Error(err, "Failed to start more workers")
			}
		})
		workers *= 2
	}
	return nil
}

// allBusy waits until so many workers are busy, and reports whether that happened before ctx was done.
func (p *Pool[R]) allBusy(ctx context.Context, workers int) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-p.queue.taken:
		}
		if p.patience > 0 {
			select {
			case <-ctx.Done():
				return false
			case <-time.After(p.patience):
			}
		}
		if p.queue.busy.Load() >= int64(workers) {
			return true
		}
	}
}
