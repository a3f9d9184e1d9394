// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment"
	"sigs.k8s.io/cluster-api/core/reconcilers/machineset"
	"sigs.k8s.io/cluster-api/core/setup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/heirloom-dev/heirloom/cmd/heirloom/app"
	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/workload/connect"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// restarts is the time after which a kubelet starts a program again.
const restarts = 10 * time.Second

// errDead is the error of all requests of a program that was killed.
var errDead = errors.New("the program was killed")

// process is a program that is started again whenever it ends, until it must stay down.
type process struct {
	name    string
	note    func(format string, args ...any)
	run     func(ctx context.Context, p *process) error
	parent  context.Context
	cancel  context.CancelFunc
	ended   chan struct{}
	dead    *atomic.Bool
	mu      sync.Mutex
	begun   chan struct{} // is closed once the caches of the present run are filled, or it has ended
	down    atomic.Bool   // whether an action keeps it down
	serving atomic.Pointer[serving]
}

// serving are the webhooks of a replica of Heirloom that is ready.
type serving struct{ management, workload http.Handler }

func (p *process) start() {
	ctx, cancel := context.WithCancel(p.parent)
	p.cancel, p.ended, p.dead = cancel, make(chan struct{}), &atomic.Bool{}
	go func() {
		defer close(p.ended)
		for p.begins(ctx) {
			if err := p.run(ctx, p); err != nil {
				p.note("%s ended: %v", p.name, err)
			}
			p.hasBegun()
			p.serving.Store(nil)
			sleep(ctx, restarts)
		}
	}()
}

// begins marks the start of a run, unless the program must end.
func (p *process) begins(ctx context.Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	p.begun = make(chan struct{})
	return true
}

// hasBegun marks that the caches of the program are filled, or that it has ended.
func (p *process) hasBegun() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.begun:
	default:
		close(p.begun)
	}
}

// kill ends the program in the middle of its work, perhaps of its start: from now on, its writes are neither sent nor answered.
func (p *process) kill() {
	p.dead.Store(true)
	p.serving.Store(nil)
	p.end()
}

// stop ends the program as SIGTERM does.
func (p *process) stop() {
	p.end()
}

// end ends the program once its caches are filled: until then, controller-runtime's manager spins for ever when its context is done. The
// real program just exits.
func (p *process) end() {
	for {
		p.mu.Lock()
		begun := p.begun
		select {
		case <-begun:
			p.cancel()
			p.mu.Unlock()
			p.serving.Store(nil)
			<-p.ended
			return
		default:
			p.mu.Unlock()
			<-begun
		}
	}
}

// mortal breaks the requests of a program that was killed, delays the requests of a program that is frozen, and loses answers.
type mortal struct {
	http.RoundTripper
	dead   *atomic.Bool
	frozen func() time.Duration
	loses  func(*http.Request) bool
	failed func(*http.Request, int)
}

// RoundTrip implements http.RoundTripper.
func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if pause := m.frozen(); pause > 0 {
		sleep(context.Background(), pause)
		if r.Method != http.MethodGet { // the program has not noticed yet that its time is over
			r = r.WithContext(context.WithoutCancel(r.Context()))
		}
	}
	dead := func() bool { return m.dead.Load() && r.Method != http.MethodGet } // a program that is killed while it starts still fills its caches
	if dead() {
		return nil, errDead
	}
	if strings.Contains(r.URL.Path, "/events") && r.Method != http.MethodGet {
		// client-go's recorders hold a lock during the request, and others wait for this lock: the request must not wait for a turn.
		body := io.NopCloser(strings.NewReader("{}"))
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
	}
	response, err := m.RoundTripper.RoundTrip(r)
	sleep(context.Background(), m.frozen())
	switch {
	case err != nil:
		return nil, err
	case dead():
		err = errDead
	case m.loses(r):
		err = errLost
	default:
		m.failed(r, response.StatusCode)
		return response, nil
	}
	_ = response.Body.Close()
	return nil, err
}

// client returns the connection of a program to an API server.
func (w *World) client(p *process, of *cluster, agent string) target {
	config := of.server.Client(p.name)
	config.UserAgent = agent
	config.Transport = mortal{
		config.Transport, p.dead, func() time.Duration { return w.left(freezeOf(p.name)) },
		func(r *http.Request) bool { return w.loses(r, p.name) }, func(r *http.Request, status int) { w.failed(p.name, r, status) },
	}
	return target{config: config, mapper: of.mapper}
}

func (w *World) workloads(p *process, agent string) map[client.ObjectKey]target {
	all := map[client.ObjectKey]target{}
	for _, of := range w.clusters {
		all[of.key] = w.client(p, of, agent)
	}
	return all
}

// runHeirloom runs a replica of Heirloom.
func (w *World) runHeirloom(ctx context.Context, p *process) error {
	c, err := w.configuration()
	if err != nil {
		return err
	}
	w.history.begins(p.name)
	management := w.client(p, w.management, "heirloom/simulated")
	h, err := app.New(ctx, management.config, c, app.Environment{
		Metrics: prometheus.NewRegistry(),
		Connect: func(_ context.Context, mgr ctrl.Manager, o connect.Options) (clustercache.ClusterCache, error) {
			options := cache.Options{SyncPeriod: &o.SyncPeriod, ByObject: map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: o.TrimNode}}}
			var indexes []clustercache.CacheOptionsIndex
			for field, values := range o.Nodes {
				indexes = append(indexes, clustercache.CacheOptionsIndex{Object: &corev1.Node{}, Field: field, ExtractValue: values})
			}
			return newClusterCache(mgr, w.workloads(p, "heirloom/simulated"), options, indexes)
		},
		Options: []func(*ctrl.Options){simulated(management.mapper)},
	})
	if err != nil {
		return err
	}
	go func() {
		if h.Manager.GetCache().WaitForCacheSync(ctx) && ctx.Err() == nil {
			p.hasBegun()
			if p.dead.Load() {
				return
			}
			mine, theirs := webhook.NewServer(webhook.Options{}), webhook.NewServer(webhook.Options{})
			webhooks.Register(mine, h.Webhooks)
			webhooks.RegisterWorkload(theirs, h.Webhooks, h.Key)
			p.serving.Store(&serving{mine.WebhookMux(), theirs.WebhookMux()})
		}
	}()
	return h.Manager.Start(ctx)
}

// simulated returns a function that sets the options of a manager that runs many times in this process.
func simulated(mapper meta.RESTMapper) func(*ctrl.Options) {
	return func(o *ctrl.Options) {
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil }
		o.Cache.NewInformer = drained(o.Cache.NewInformer)
		o.Controller.SkipNameValidation = ptr.To(true)
	}
}

// newInformer makes an informer of a cache.
type newInformer = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// drained reads each stopped watch to its end: apimachinery's watch.Filter, which controller-runtime puts around watches of metadata, would
// wait forever for a reader of its last event.
func drained(inner newInformer) newInformer {
	if inner == nil {
		inner = toolscache.NewSharedIndexInformer
	}
	return func(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if of, ok := lw.(*toolscache.ListWatch); ok {
			watches := of.WatchFuncWithContext
			of.WatchFuncWithContext = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				w, err := watches(ctx, options)
				if err != nil {
					return nil, err
				}
				return drain{w}, nil
			}
		}
		return inner(lw, example, resync, indexers)
	}
}

type drain struct{ watch.Interface }

// Stop implements watch.Interface.
func (d drain) Stop() {
	d.Interface.Stop()
	go func() {
		for range d.ResultChan() {
		}
	}()
}

// configuration returns the configuration from Heirloom's flags.
func (w *World) configuration() (*config.Config, error) {
	options, flags := config.NewOptions(), pflag.NewFlagSet("heirloom", pflag.ContinueOnError)
	options.AddFlags(flags)
	if err := flags.Parse(w.flags); err != nil {
		return nil, err
	}
	return options.Complete()
}

// outside runs functions outside of every bubble, one at a time, and outcomes has their errors. Cluster API's ssa.NewCache starts a
// goroutine that never ends, which no bubble may have. The set-up of a reconciler makes such a cache, and does nothing that blocks.
var outside, outcomes = func() (chan<- func() error, <-chan error) {
	functions, errs := make(chan func() error), make(chan error)
	go func() {
		for f := range functions {
			errs <- f()
		}
	}()
	return functions, errs
}()

func runOutside(f func() error) error {
	outside <- f
	return <-outcomes
}

// managers counts Cluster API's managers, because no two informers of a process may have the same name.
var managers atomic.Int64

// runClusterAPI runs Cluster API's controllers of MachineDeployments, MachineSets and Machines.
func (w *World) runClusterAPI(ctx context.Context, p *process) error {
	management := w.client(p, w.management, "manager")
	options := ctrl.Options{
		Scheme: clusterAPIScheme, Metrics: metricsserver.Options{BindAddress: "0"}, Client: setup.ManagerClientOptions(),
		Cache:      setup.ManagerCacheOptions(clusterAPIScheme, fmt.Sprintf("manager-%d", managers.Add(1)), "", clusterAPISyncPeriod),
		Controller: ctrlconfig.Controller{ReconciliationTimeout: time.Minute},
	}
	simulated(management.mapper)(&options)
	mgr, err := ctrl.NewManager(management.config, options)
	if err != nil {
		return err
	}
	theirs := setup.ClusterCacheCacheOptions()
	clusters, err := newClusterCache(mgr, w.workloads(p, "manager"), cache.Options{SyncPeriod: theirs.SyncPeriod, ByObject: theirs.ByObject}, theirs.Indexes)
	if err != nil {
		return err
	}
	clusters.uncached = setup.ClusterCacheClientOptions("manager", 0, 0).Cache.DisableFor
	err = runOutside(func() error {
		ctx, several := context.Background(), controller.Options{MaxConcurrentReconciles: 10}
		return errors.Join(
			(&machinedeployment.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader()}).SetupWithManager(ctx, mgr, several),
			(&machineset.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusters}).SetupWithManager(ctx, mgr, several),
			(&machine.Reconciler{
				Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusters, RemoteConditionsGracePeriod: 5 * time.Minute,
			}).SetupWithManager(ctx, mgr, several),
			w.setUpPools(ctx, mgr, clusters, several),
			w.setUpTopologies(ctx, mgr, clusters, several),
		)
	})
	if err != nil {
		return fmt.Errorf("setting up Cluster API: %w", err)
	}
	go func() {
		if mgr.GetCache().WaitForCacheSync(ctx) {
			p.hasBegun()
		}
	}()
	return mgr.Start(ctx)
}

var clusterAPIScheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	return scheme
}()
