// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capabilities"
	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/controllers"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/connect"
	"github.com/heirloom-dev/heirloom/webhooks"
)

const (
	// liveReads is how many objects the webhooks and the loop may each read live per second, and at once. An owner is read once for many
	// requests, and each Node costs a read of its own Machine.
	liveReads = 1000
	// gather is the time for which repeated live reads of the loop wait, so that the Nodes of a Cluster share them. Admission does not wait.
	gather = 10 * time.Millisecond
	// unknownFor is how long a control plane's kind counts as unknown after the API server published no schema for it.
	unknownFor = 5 * time.Second
)

// Environment holds the differences between the program and a simulation of it, which has no sockets and runs many times in one process.
type Environment struct {
	Metrics prometheus.Registerer
	// Connect returns the connections to workload clusters.
	Connect func(context.Context, ctrl.Manager, connect.Options) (clustercache.ClusterCache, error)
	// Options change the options of the manager.
	Options []func(*ctrl.Options)
}

// Heirloom is the program without its servers: the manager, which runs the loop, and the dependencies of the webhooks.
type Heirloom struct {
	Manager  ctrl.Manager
	Webhooks webhooks.Dependencies
	// Key returns the key that proves the paths of the webhooks of workload clusters.
	Key func(context.Context) []byte

	metrics *metrics.Metrics
}

// New wires Heirloom. Nothing runs before the manager starts.
func New(ctx context.Context, restConfig *rest.Config, c *config.Config, environment Environment) (*Heirloom, error) {
	mgr, err := newManager(restConfig, c, environment.Options...)
	if err != nil {
		return nil, err
	}
	if err := capabilities.ClusterAPI(mgr.GetRESTMapper()); err != nil {
		return nil, err
	}
	if err := owners.Prepare(ctx, mgr.GetCache(), c.ManagementClusterKey.Name != ""); err != nil {
		return nil, err
	}
	counters, err := metrics.New(environment.Metrics)
	if err != nil {
		return nil, err
	}
	h := &Heirloom{Manager: mgr, metrics: counters}
	return h, h.wire(ctx, c, environment)
}

// wire adds the loop to the manager, and sets up the parts that loop and webhooks share.
func (h *Heirloom) wire(ctx context.Context, c *config.Config, environment Environment) error {
	mgr := h.Manager
	// The requests of a discovery client have no context, but their own timeout.
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
	nodes, keys, err := addAdmission(ctx, mgr, c, workload.ByPolicy{
		Installed: c.WebhookConfiguration, Machines: chain.EffectiveMachines, Policy: policy,
	})
	if err != nil {
		return err
	}
	admission := chain
	admission.Live, admission.Freshness, admission.Count = live, owners.FromCacheElseLive, h.metrics.OwnerLookup
	h.Key, h.Webhooks = keys.Key, webhooks.Dependencies{
		Chain: &admission, Metrics: h.metrics, Watches: c.Watches, Policy: policy, ManagementCluster: c.ManagementClusterKey,
	}
	recorder := controllers.Brief(mgr.GetEventRecorder("heirloom"))
	var clusterCache clustercache.ClusterCache // nil, unless Heirloom reaches workload clusters
	if c.WorkloadClusters {
		clusterCache, err = environment.Connect(ctx, mgr, connect.Options{
			WatchFilter: c.WatchFilter, SyncPeriod: c.SyncPeriod, Nodes: owners.Indexes(&corev1.Node{}), TrimNode: owners.TransformNode(c.Rules),
			QPS: c.ClusterCacheClientQPS, Burst: c.ClusterCacheClientBurst, Concurrency: c.ClusterCacheConcurrency,
			Refused: controllers.KubeconfigRefused(mgr.GetClient(), recorder),
		})
	}
	if err != nil {
		return err
	}
	return controllers.Setup(mgr, &controllers.Dependencies{
		ManagementCluster: c.ManagementClusterKey, ProviderGroups: c.ProviderGroups, NoExecute: c.NoExecuteLimits,
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Chain: &chain, Metrics: h.metrics, SchemaChanges: schemas.Subscribe,
		Workloads: clusterCache, Admission: nodes, Recorder: recorder, Policy: policy, PolicyChanges: gate.Subscribe,
	})
}

// newReaders returns the clients with which webhooks and loop read owners that the cache does not have, or that may be stale there. Each
// client has its own rate limit for all kinds, so that neither waits for the other.
func newReaders(mgr ctrl.Manager) (webhooks, loop client.Reader, err error) {
	readers := [2]client.Reader{}
	for i, wait := range []time.Duration{0, gather} {
		config := rest.CopyConfig(mgr.GetConfig())
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(liveReads, liveReads)
		reader, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
		if err != nil {
			return nil, nil, fmt.Errorf("creating the client for live reads: %w", err)
		}
		readers[i] = &owners.Live{Reader: reader, Gather: wait}
	}
	return readers[0], readers[1], nil
}
