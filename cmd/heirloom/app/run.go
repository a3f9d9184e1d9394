// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/heirloom-dev/heirloom/pkg/capabilities"
	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/controllers"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/version"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// discoveryTimeout bounds the requests for schemas and kinds.
const discoveryTimeout = 30 * time.Second

// liveReads is how many objects a second, and at once, the webhooks may read from the API server. Owners are read once for many
// requests, and each Node costs a read of its own Machine.
const liveReads = 1000

// unknownFor is how long a kind that the API server does not serve counts as unknown in admission.
const unknownFor = 5 * time.Second

// reserved is memory that is never touched, so that it takes none of the machine's. Go collects garbage whenever the heap has doubled:
// without it, the small heap of a replica would be collected for every few requests (BenchmarkWebhookCPU).
const reserved = 32 << 20

// run wires everything and blocks until a while after told is done.
func run(told context.Context, c *config.Config) error {
	defer runtime.KeepAlive(make([]byte, reserved))
	ctrl.Log.Info("Starting Heirloom", "version", version.String())
	ctx, stop := drain(told, c.ShutdownDelay)
	defer stop()
	restConfig, err := restConfigOf(c)
	if err != nil {
		return err
	}
	served, err := newCertificate(c)
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
	if err := wire(ctx, told, mgr, c, served); err != nil {
		return err
	}
	filled := make(chan struct{})
	if err := addChecks(mgr, served, filled); err != nil {
		return err
	}
	return start(ctx, mgr, filled)
}

// drain returns a context that is done a while after told: until then the Service may lead to this Pod.
func drain(told context.Context, delay time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(context.WithoutCancel(told))
	context.AfterFunc(told, func() {
		ctrl.Log.Info("Told to stop; requests are still answered", "for", delay)
		time.AfterFunc(delay, stop)
	})
	return ctx, stop
}

// start blocks until ctx is done and everything has ended, or shutdownTimeout is over. It closes filled once the caches are filled. Until
// then, a manager cannot be stopped: it keeps waiting for them, forever if a right is missing. A program that is not ready has nothing to
// finish, so it just ends.
func start(ctx context.Context, mgr ctrl.Manager, filled chan struct{}) error {
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	go func() {
		if mgr.GetCache().WaitForCacheSync(ctx) {
			close(filled)
		}
	}()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		if ready(filled) {
			err = <-ended
		}
	}
	if err != nil && ctx.Err() != nil {
		ctrl.Log.Error(err, "Told to stop, and not everything has ended") // its context is done, so it writes nothing more
		return nil
	}
	if err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}

// ready reports whether the caches have been filled.
func ready(filled <-chan struct{}) bool {
	select {
	case <-filled:
		return true
	default:
		return false
	}
}

// wire adds webhooks and loop to the manager, and what both need.
func wire(ctx, told context.Context, mgr ctrl.Manager, c *config.Config, served *certificate) error {
	counters, err := metrics.New(ctrlmetrics.Registry)
	if err == nil {
		err = counters.Certificate(served.NotAfter)
	}
	if err != nil {
		return err
	}
	discoveryClient, err := newDiscovery(mgr)
	if err != nil {
		return err
	}
	schemas, gate, err := addCapabilities(mgr, c, discoveryClient)
	if err != nil {
		return err
	}
	policy := func() inherit.Policy {
		policy := c.Rules
		if c.DetectTaintPropagation {
			policy.ClusterAPITaints = gate.State()
		}
		return policy
	}
	recorder := controllers.Brief(mgr.GetEventRecorder("heirloom"))
	clusterCache, err := addClusterCache(ctx, mgr, c, recorder)
	if err != nil {
		return err
	}
	registrar, err := addRegistration(ctx, mgr, c)
	if err != nil {
		return err
	}
	if err := served.add(ctx, mgr); err != nil {
		return err
	}
	live, err := newReader(mgr)
	if err != nil {
		return err
	}
	// A kind that is unknown is asked for each time: the loop would wait for minutes.
	chain := owners.Chain{
		Cache: mgr.GetCache(), Live: live, Mapper: &owners.Kinds{Discovery: discoveryClient, KnownFor: c.SyncPeriod}, Layout: schemas.ControlPlane,
	}
	admission := chain
	admission.AskMissing, admission.Count = true, counters.OwnerLookup
	admission.Mapper = &owners.Kinds{Discovery: discoveryClient, UnknownFor: unknownFor, KnownFor: c.SyncPeriod}
	dependencies := webhooks.Dependencies{
		Chain: &admission, Metrics: counters, Namespace: c.Namespace, Policy: policy, ManagementCluster: c.ManagementClusterKey,
	}
	err = errors.Join(addWebhooks(ctx, told, mgr, c, served, dependencies), addWorkloadServer(told, mgr, c, served, dependencies, registrar))
	if err != nil {
		return err
	}
	byPolicy := workload.ByPolicy{Machines: chain.EffectiveMachines, Policy: policy}
	return controllers.Setup(mgr, &controllers.Dependencies{
		ManagementCluster: c.ManagementClusterKey,
		Client:            mgr.GetClient(), Live: mgr.GetAPIReader(), Chain: &chain, Metrics: counters, SchemaChanges: schemas.Subscribe,
		Workloads: clusterCache, Admission: nodeAdmission(c, byPolicy, registrar), ProviderGroups: c.ProviderGroups, NoExecuteRate: c.NoExecuteRate, Namespace: c.Namespace,
		Recorder: recorder, Policy: policy, PolicyChanges: gate.Subscribe,
	})
}

// addCapabilities adds what finds out which fields the kinds of the API server have, and, if the operator left that to Heirloom, whether
// Cluster API propagates taints.
func addCapabilities(mgr ctrl.Manager, c *config.Config, from discovery.DiscoveryInterface) (*capabilities.Schemas, *capabilities.Gate, error) {
	schemas := &capabilities.Schemas{Client: from.OpenAPIV3(), Interval: c.SyncPeriod, UnknownFor: unknownFor}
	if err := mgr.Add(schemas); err != nil {
		return nil, nil, fmt.Errorf("adding the reader of schemas: %w", err)
	}
	gate := &capabilities.Gate{Client: mgr.GetClient(), Interval: c.SyncPeriod}
	if c.DetectTaintPropagation {
		if err := mgr.Add(gate); err != nil {
			return nil, nil, fmt.Errorf("adding the taint propagation detector: %w", err)
		}
	}
	return schemas, gate, nil
}

// newReader returns what the webhooks read owners with, if the cache does not have them or may be behind. It shares no rate limit
// with the loop, so that neither waits for the other, and has one limit for all kinds.
func newReader(mgr ctrl.Manager) (client.Reader, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(liveReads, liveReads)
	reader, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return nil, fmt.Errorf("creating the webhooks' client: %w", err)
	}
	return &owners.Live{Reader: reader}, nil
}

// newDiscovery returns a client whose requests end by themselves: they have no context to do so.
func newDiscovery(mgr ctrl.Manager) (discovery.DiscoveryInterface, error) {
	restConfig := rest.CopyConfig(mgr.GetConfig())
	restConfig.Timeout = discoveryTimeout
	client, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		return nil, fmt.Errorf("creating the discovery client: %w", err)
	}
	return client, nil
}
