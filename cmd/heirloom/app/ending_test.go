// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	electionfake "sigs.k8s.io/controller-runtime/pkg/leaderelection/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

const never = time.Hour

// However the loop behaves, requests are answered, the Lease is given back, and the program ends within its bound.
func TestAnOrderlyStop(t *testing.T) {
	for _, tc := range []struct {
		name string
		// how long each of them goes on after the program was told to stop
		beside, loop, request time.Duration
		takes                 time.Duration
		left                  []string
		problem               string
	}{
		{name: "what ends when it is told to is not waited for"},
		{name: "a reconcile that is under way is finished", loop: loopTimeout - 1, takes: loopTimeout - 1},
		{name: "a reconcile that ignores its context is left behind", loop: never, takes: loopTimeout, left: []string{"stubborn"}},
		{name: "so is what works beside the loop", beside: never, takes: loopTimeout, left: []string{"app.neighbour"}},
		{name: "all the same, a request is answered", beside: never, loop: never, request: 2 * loopTimeout, takes: 2 * loopTimeout, left: []string{"app.neighbour", "stubborn"}},
		{name: "a request as long as one about a Node may take is answered", beside: never, loop: never, request: shutdownTimeout - 1, takes: shutdownTimeout - 1, left: []string{"app.neighbour", "stubborn"}},
		{name: "a request that is never answered is a failure", request: never, takes: shutdownTimeout, problem: "failed waiting for all runnables to end within grace period"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				p := newProgram(t, tc.beside, tc.loop, tc.request)
				took, err := p.stop(t)
				if tc.problem == "" {
					Expect(err).NotTo(HaveOccurred())
					Expect(p.answered).To(BeTrue())
				} else {
					Expect(err).To(MatchError(ContainSubstring(tc.problem)))
				}
				Expect(took).To(Equal(tc.takes))
				Expect(p.log.about("Left behind")).To(HaveLen(len(tc.left)))
				for i, name := range tc.left {
					Expect(p.log.about("Left behind")[i]).To(ContainSubstring(name))
				}
				lease, _, err := p.lock.Get(t.Context())
				Expect(err).NotTo(HaveOccurred())
				Expect(lease.HolderIdentity).To(BeEmpty(), "the Lease is given back")
			})
		})
	}
}

// Requests are answered for as long as anything else is still going on, and caches are there for as long as they are read.
func TestTheOrderOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, time.Second, time.Second, 0)
		_, err := p.stop(t)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(p.ended).To(Equal([]string{"neighbour", "reconcile", "informers", "requests"}))
	})
}

// program is a manager with a controller that is at work, something beside it, and a request that is being answered. Each
// goes on for some time after it was told to stop, the request for some time after the program was.
type program struct {
	manager.Manager
	lock     resourcelock.Interface
	log      *lines
	told     time.Time
	answered bool

	mu    sync.Mutex
	ended []string
}

func newProgram(t *testing.T, beside, loop, request time.Duration) *program {
	t.Helper()
	Expect := NewWithT(t).Expect
	lock, err := electionfake.NewResourceLock(nil, nil, leaderelection.Options{})
	Expect(err).NotTo(HaveOccurred())
	p := &program{lock: lock, log: &lines{}}
	over := make(chan struct{})
	t.Cleanup(func() { close(over); synctest.Wait() })
	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
		Logger: funcr.New(p.log.add, funcr.Options{}), Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return &informertest.FakeInformers{}, nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return fake.NewFakeClient(), nil },
		LeaderElection: true, LeaderElectionReleaseOnCancel: true, LeaderElectionResourceLockInterface: lock,
		GracefulShutdownTimeout: ptr.To(shutdownTimeout),
	})
	Expect(err).NotTo(HaveOccurred())
	p.Manager = orderly{mgr}
	p.addController(t, "stubborn", lasting(loop, over))
	Expect(p.Add(informers{ends: p.end})).To(Succeed())
	Expect(p.Add(neighbour(func(ctx context.Context) { lasting(beside, over)(ctx); p.end("neighbour") }))).To(Succeed())
	Expect(p.Add(requests{during: func(ctx context.Context) {
		<-ctx.Done()
		select {
		case <-time.After(request - time.Since(p.told)):
			p.answered = true
		case <-over:
		}
		p.end("requests")
	}})).To(Succeed())
	return p
}

// lasting is work that goes on for a while once its context is done, or until it is over.
func lasting(extra time.Duration, over <-chan struct{}) func(context.Context) {
	return func(ctx context.Context) {
		<-ctx.Done()
		if extra == 0 {
			return
		}
		select {
		case <-time.After(extra):
		case <-over:
		}
	}
}

// stop starts the program, lets it do its work, and tells it to stop.
func (p *program) stop(t *testing.T) (took time.Duration, err error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- start(ctx, p, make(chan struct{})) }()
	<-p.Elected()
	synctest.Wait()
	p.told = time.Now()
	cancel()
	err = <-ended
	return time.Since(p.told), err
}

func (p *program) end(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = append(p.ended, who)
}

// neighbour is something that works beside the loop, in every replica.
type neighbour func(context.Context)

func (n neighbour) Start(ctx context.Context) error { n(ctx); return nil }

func (neighbour) NeedLeaderElection() bool { return false }

// informers are the cache of another cluster.
type informers struct {
	informertest.FakeInformers
	ends func(string)
}

func (i informers) GetCache() cache.Cache { return &i.FakeInformers }

func (i informers) Start(ctx context.Context) error { <-ctx.Done(); i.ends("informers"); return nil }

// addController adds one that gets a single request.
func (p *program) addController(t *testing.T, name string, work func(context.Context)) {
	t.Helper()
	c, err := controller.New(name, p, controller.Options{
		SkipNameValidation: ptr.To(true),
		Reconciler: reconcile.Func(func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
			work(ctx)
			p.end("reconcile")
			return ctrl.Result{}, nil
		}),
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(c.Watch(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		queue.Add(ctrl.Request{})
		return nil
	}))).To(Succeed())
}

// requests is a webhook server that ends when all its requests have been answered.
type requests struct {
	webhook.Server
	during func(context.Context)
}

func (r requests) Start(ctx context.Context) error { r.during(ctx); return nil }

func (requests) NeedLeaderElection() bool { return false }

// lines are the lines of a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

// about returns the lines that contain a text.
func (l *lines) about(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.all), func(line string) bool { return !strings.Contains(line, text) })
}
