// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// oneManager is a manager that keeps what is added to it. What it does not implement nobody may need.
type oneManager struct {
	ctrl.Manager
	added []manager.Runnable
	full  error
	log   logr.Logger
}

func (m *oneManager) GetLogger() logr.Logger { return m.log }

func (m *oneManager) Add(runnable manager.Runnable) error {
	m.added = append(m.added, runnable)
	return m.full
}

// work is a controller whose requests wait until they are let go. It notes them in their order, and tells of each that begins.
type work[R comparable] struct {
	mu     sync.Mutex
	begun  []R
	begins chan struct{}
	let    chan struct{}
	answer func(R) (reconcile.Result, error)
}

func newWork[R comparable]() *work[R] {
	return &work[R]{begins: make(chan struct{}, 1000), let: make(chan struct{})}
}

func (w *work[R]) Reconcile(_ context.Context, request R) (reconcile.Result, error) {
	w.mu.Lock()
	w.begun = append(w.begun, request)
	w.mu.Unlock()
	w.begins <- struct{}{}
	<-w.let
	if w.answer != nil {
		return w.answer(request)
	}
	return reconcile.Result{}, nil
}

func (w *work[R]) seen() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.begun)
}

// run runs a controller with these workers, inside a bubble whose clock goes on when everybody waits, and returns what gives it
// requests.
func run[R comparable](t *testing.T, p *Pool[R], w *work[R], log logr.Logger) (add func(requests ...R)) {
	t.Helper()
	Expect := NewWithT(t).Expect
	mgr := &oneManager{log: log}
	options := p.Options()
	options.Reconciler, options.SkipNameValidation, options.Logger = w, ptr.To(true), log
	c, err := controller.NewTypedUnmanaged(p.name, options)
	Expect(err).NotTo(HaveOccurred())
	Expect(p.Serve(mgr, c)).To(Succeed())
	Expect(mgr.added).To(HaveLen(1))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Start(ctx) })
	running.Go(func() { _ = mgr.added[0].Start(ctx) })
	synctest.Wait()
	t.Cleanup(func() {
		synctest.Wait()
		cancel()
		running.Wait()
	})
	return func(requests ...R) {
		Expect(c.Watch(source.TypedFunc[R](func(_ context.Context, queue workqueue.TypedRateLimitingInterface[R]) error {
			for _, request := range requests {
				queue.Add(request)
			}
			return nil
		}))).To(Succeed())
		synctest.Wait()
	}
}

// begunMore waits until so many more requests have begun, and whatever else follows from that.
func (w *work[R]) begunMore(n int) {
	for range n {
		<-w.begins
	}
	synctest.Wait()
}

func named(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}}
}

// As many clusters as there are may hang at the same time, and the next request finds a worker at once.
func TestThereIsAlwaysAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		w := newWork[string]()
		add := run(t, Shared("always", 2, 3, clusterOf, func(base logr.Logger, _ *string) logr.Logger { return base }), w, logr.Discard())
		begin := time.Now()
		for c := range 20 {
			for n := range 6 {
				add(fmt.Sprintf("%d/%d", c, n))
			}
			Expect(w.seen()).To(Equal(3 * (c + 1)))
		}
		Expect(time.Since(begin)).To(BeZero(), "nobody has waited for a clock")
		close(w.let)
		synctest.Wait()
		Expect(w.seen()).To(Equal(120), "each once")
		Expect(time.Since(begin)).To(BeZero())
	})
}

// Where connections are many but each is made in no time, there are only so many at once. It takes patience to have more.
func TestMoreWorkersAreStartedOnlyWhenAllHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		w := newWork[ctrl.Request]()
		add := run(t, ForClusters("patient", 2, time.Second), w, logr.Discard())
		for n := range 20 {
			add(named(fmt.Sprint(n)))
		}
		begin, before := time.Now(), 0
		for i, workers := range []int{2, 4, 8, 16, 20} {
			w.begunMore(workers - before)
			Expect(w.seen()).To(Equal(workers))
			Expect(time.Since(begin)).To(Equal(time.Duration(i) * time.Second))
			before = workers
		}
		close(w.let)
	})
}

// What is added later behaves like the controller: errors are tried again, and the log names the Cluster.
func TestWorkersThatWereAddedTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		var mu sync.Mutex
		var log []string
		w := newWork[ctrl.Request]()
		failed := map[string]bool{}
		w.answer = func(request ctrl.Request) (reconcile.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			if failed[request.Name] {
				return reconcile.Result{}, nil
			}
			failed[request.Name] = true
			return reconcile.Result{}, errors.New("no answer")
		}
		add := run(t, ForClusters("again", 1, 0), w, funcr.New(func(_, line string) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, line)
		}, funcr.Options{}))
		add(named("a"), named("b"), named("c"))
		Expect(w.seen()).To(Equal(3))
		close(w.let)
		w.begunMore(6)
		Expect(w.seen()).To(Equal(6))
		mu.Lock()
		defer mu.Unlock()
		Expect(log).To(ContainElement(And(ContainSubstring("no answer"), ContainSubstring(`"controller"="again"`), ContainSubstring(`"Cluster"={"name"="c" "namespace"="ns"}`))))
	})
}

func TestAManagerThatTakesNoWorkers(t *testing.T) {
	mgr := &oneManager{full: errors.New("no room")}
	err := ForClusters("x", 1, 0).Serve(mgr, nil)
	NewWithT(t).Expect(err).To(MatchError("adding the workers of the x controller: no room"))
}
