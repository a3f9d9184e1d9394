// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/heirloom-dev/heirloom/certs"
	"github.com/heirloom-dev/heirloom/pkg/capabilities"
	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/controllers"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/version"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/connect"
	"github.com/heirloom-dev/heirloom/webhooks"
)

const (
	// liveReads is how many objects a second, and at once, webhooks and loop may each read from the API server. Owners are read once for many
	// requests, and each Node costs a read of its own Machine.
	liveReads = 1000
	// unknownFor is how long a kind that the API server does not serve counts as unknown in admission.
	unknownFor = 5 * time.Second
	// reserve is memory that is never touched, so that it takes none of the machine's; growth is the percentage by which the heap, with
	// the reserve, grows before garbage is collected. Together they leave some 40 MiB of garbage to a small heap, so that a replica does
	// not collect it for every few requests (BenchmarkWebhookCPU), and no more to a large one (BenchmarkResidentMemory).
	reserve, growth = 256 << 20, 13
)

// run wires everything and blocks until a while after told is done.
func run(told context.Context, c *config.Config) error {
	defer runtime.KeepAlive(reserved())
	ctrl.Log.Info("Starting Heirloom", "version", version.String())
	ctx, stop := drain(told, c.ShutdownDelay)
	defer stop()
	restConfig, err := restConfigOf(c)
	if err != nil {
		return err
	}
	mgr, err := newManager(restConfig, c)
	if err != nil {
		return err
	}
	if err := capabilities.ClusterAPI(mgr.GetRESTMapper()); err != nil {
		return err
	}
	if err := owners.Prepare(ctx, mgr.GetCache(), c.ManagementClusterKey.Name != ""); err != nil {
		return err
	}
	served, err := addCertificate(ctx, mgr, c)
	if err != nil {
		return err
	}
	if err := wire(ctx, told, mgr, c, served); err != nil {
		return err
	}
	filled := &atomic.Bool{}
	if err := errors.Join(addDiagnostics(mgr, c), addProbes(mgr, c, served, filled)); err != nil {
		return err
	}
	return start(ctx, mgr, filled)
}

// reserved makes the reserve. A limit of the memory counts it, so it is small where the limit is. It consists of pieces, because Go
// writes zeros to all of an object of which it has used any memory before.
func reserved() [][]byte {
	const piece = 1 << 20
	pieces := make([][]byte, min(reserve, debug.SetMemoryLimit(-1)/4)/piece)
	for i := range pieces {
		pieces[i] = make([]byte, piece)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(growth)
	}
	return pieces
}

// drain returns a context that is done a while after told: until then the Service may lead to this Pod.
func drain(told context.Context, delay time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(context.WithoutCancel(told))
	unregister := context.AfterFunc(told, func() {
		ctrl.Log.Info("Told to stop; requests are still answered", "for", delay)
		time.AfterFunc(delay, stop)
	})
	return ctx, func() {
		unregister()
		stop()
	}
}

// start blocks until ctx is done and everything has ended, or shutdownTimeout is over. It sets filled once the caches are filled. Until
// then, a manager cannot be stopped: it keeps waiting for them, forever if a right is missing. A program that is not ready has nothing to
// finish, so it just ends.
func start(ctx context.Context, mgr ctrl.Manager, filled *atomic.Bool) error {
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	go func() { filled.Store(mgr.GetCache().WaitForCacheSync(ctx)) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		if filled.Load() {
			err = <-ended
		}
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		ctrl.Log.Error(err, "Told to stop, and not everything has ended") // its context is done, so it writes nothing more
		return nil
	}
	return fmt.Errorf("running: %w", err)
}

// wire adds webhooks and loop to the manager, and what both need.
func wire(ctx, told context.Context, mgr ctrl.Manager, c *config.Config, served certs.Source) error {
	counters, err := metrics.New(ctrlmetrics.Registry)
	if err == nil {
		err = counters.Certificate(served.NotAfter)
	}
	if err != nil {
		return err
	}
	// The requests of a discovery client have no context, but a timeout of their own.
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("creating the discovery client: %w", err)
	}
	live, loops, err := newReaders(mgr)
	if err != nil {
		return err
	}
	schemas := &capabilities.Schemas{Client: discoveryClient.OpenAPIV3(), Interval: c.SyncPeriod, UnknownFor: unknownFor}
	gate := &capabilities.Gate{Client: mgr.GetClient(), Interval: c.SyncPeriod}
	if c.DetectTaintPropagation {
		err = mgr.Add(gate)
	}
	if err = errors.Join(err, mgr.Add(schemas)); err != nil {
		return err
	}
	policy := func() inherit.Policy {
		policy := c.Rules
		if c.DetectTaintPropagation {
			policy.ClusterAPITaints = gate.State()
		}
		return policy
	}
	chain := owners.Chain{
		Cache: mgr.GetCache(), Live: loops, Layout: schemas.ControlPlane,
		Mapper: &owners.Kinds{Discovery: discoveryClient, UnknownFor: time.Second, KnownFor: c.SyncPeriod},
	}
	nodes, keys, err := addAdmission(ctx, mgr, c, workload.ByPolicy{Machines: chain.EffectiveMachines, Policy: policy})
	if err != nil {
		return err
	}
	admission := chain
	admission.Live, admission.AskMissing, admission.Count = live, true, counters.OwnerLookup
	admission.Mapper = &owners.Kinds{Discovery: discoveryClient, UnknownFor: unknownFor, KnownFor: c.SyncPeriod}
	if err := addServers(ctx, told, mgr, c, served, keys.Key, webhooks.Dependencies{
		Chain: &admission, Metrics: counters, Namespace: c.Namespace, Policy: policy, ManagementCluster: c.ManagementClusterKey,
	}); err != nil {
		return err
	}
	recorder := controllers.Brief(mgr.GetEventRecorder("heirloom"))
	clusterCache, err := connect.NewClusterCache(ctx, mgr, connect.Options{
		WatchFilter: c.WatchFilter, SyncPeriod: c.SyncPeriod, Nodes: owners.Indexes(&corev1.Node{}), TrimNode: owners.TransformNode(c.Rules),
		QPS: c.ClusterCacheClientQPS, Burst: c.ClusterCacheClientBurst, Concurrency: c.ClusterCacheConcurrency,
		Refused: controllers.KubeconfigRefused(mgr.GetClient(), recorder),
	})
	if err != nil {
		return err
	}
	return controllers.Setup(mgr, &controllers.Dependencies{
		ManagementCluster: c.ManagementClusterKey, ProviderGroups: c.ProviderGroups, NoExecuteRate: c.NoExecuteRate, Namespace: c.Namespace,
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Chain: &chain, Metrics: counters, SchemaChanges: schemas.Subscribe,
		Workloads: clusterCache, Admission: nodes, Recorder: recorder, Policy: policy, PolicyChanges: gate.Subscribe,
	})
}

// newReaders returns what the webhooks and the loop read owners with, if the cache does not have them or may be behind. Each has a rate
// limit of its own for all kinds, so that neither waits for the other.
func newReaders(mgr ctrl.Manager) (webhooks, loop client.Reader, err error) {
	readers := [2]client.Reader{}
	for i := range readers {
		config := rest.CopyConfig(mgr.GetConfig())
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(liveReads, liveReads)
		reader, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
		if err != nil {
			return nil, nil, fmt.Errorf("creating the client for live reads: %w", err)
		}
		readers[i] = &owners.Live{Reader: reader}
	}
	return readers[0], readers[1], nil
}
