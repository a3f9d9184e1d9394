// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// The probe settings of Cluster API's ClusterCache, with rarer probes: a connection breaks after about the same time.
const (
	probeInterval   = 25 * time.Second
	probeTimeout    = 5 * time.Second
	mostFailures    = 2
	reconnectsAfter = 30 * time.Second
)

// target is the connection of a client to an API server. The mapper sends no requests: it would hold a lock during a request.
type target struct {
	config *rest.Config
	mapper meta.RESTMapper
}

// clusterCache replaces Cluster API's ClusterCache, which makes its own transport from a kubeconfig and so needs a socket. It keeps the
// same promises to controllers: connections that break and are made again, a cache for each connection, and a source of events.
type clusterCache struct {
	mgr     ctrl.Manager
	reach   map[client.ObjectKey]target
	options cache.Options
	indexes []clustercache.CacheOptionsIndex
	// uncached are objects that its clients read from the API server.
	uncached []client.Object

	mu          sync.Mutex
	connections map[client.ObjectKey]*connection
	states      map[client.ObjectKey]clustercache.HealthCheckingState
	sources     []func(client.ObjectKey)
}

type connection struct {
	config       *rest.Config
	cache        cache.Cache
	cached, live client.Client
	watches      map[string]bool
}

func newClusterCache(mgr ctrl.Manager, reach map[client.ObjectKey]target, options cache.Options, indexes []clustercache.CacheOptionsIndex) (*clusterCache, error) {
	options.Scheme, options.NewInformer = mgr.GetScheme(), drained(nil)
	c := &clusterCache{
		mgr: mgr, reach: reach, options: options, indexes: indexes,
		connections: map[client.ObjectKey]*connection{}, states: map[client.ObjectKey]clustercache.HealthCheckingState{},
	}
	return c, mgr.Add(c)
}

// Start implements manager.Runnable.
func (c *clusterCache) Start(ctx context.Context) error {
	var all sync.WaitGroup
	for _, cluster := range slices.SortedFunc(maps.Keys(c.reach), func(a, b client.ObjectKey) int { return strings.Compare(a.String(), b.String()) }) {
		all.Go(func() { c.keep(ctx, cluster) })
	}
	all.Wait()
	return nil
}

// keep connects to a workload cluster again and again, until ctx is done.
func (c *clusterCache) keep(ctx context.Context, cluster client.ObjectKey) {
	for ctx.Err() == nil {
		if err := c.connected(ctx, cluster); err != nil {
			c.probed(cluster, false)
			sleep(ctx, reconnectsAfter)
		}
	}
}

// connected holds one connection until it breaks.
func (c *clusterCache) connected(ctx context.Context, cluster client.ObjectKey) error {
	ctx, cancel := context.WithCancel(ctx)
	conn, err := c.connect(ctx, cluster)
	if err != nil {
		cancel()
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = conn.cache.Start(ctx)
	}()
	defer func() { <-ended }()
	defer cancel()
	if !conn.cache.WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	c.set(cluster, conn)
	defer c.set(cluster, nil)
	for failures := 0; failures < mostFailures; {
		sleep(ctx, probeInterval)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err := probe(ctx, conn)
		c.probed(cluster, err == nil)
		failures++
		if err == nil {
			failures = 0
		}
	}
	return clustercache.ErrClusterNotConnected
}

func (c *clusterCache) connect(ctx context.Context, cluster client.ObjectKey) (*connection, error) {
	config, mapper := c.reach[cluster].config, c.reach[cluster].mapper
	conn := &connection{config: config, watches: map[string]bool{}}
	options := c.options
	options.Mapper = mapper
	var err error
	if conn.cache, err = cache.New(config, options); err != nil {
		return nil, fmt.Errorf("creating the cache: %w", err)
	}
	if conn.live, err = client.New(config, client.Options{Scheme: options.Scheme, Mapper: mapper}); err != nil {
		return nil, fmt.Errorf("creating the client: %w", err)
	}
	conn.cached, err = client.New(config, client.Options{Scheme: options.Scheme, Mapper: mapper, Cache: &client.CacheOptions{Reader: conn.cache, DisableFor: c.uncached}})
	if err != nil {
		return nil, fmt.Errorf("creating the cached client: %w", err)
	}
	for _, index := range c.indexes {
		if err := conn.cache.IndexField(ctx, index.Object, index.Field, index.ExtractValue); err != nil {
			return nil, fmt.Errorf("indexing: %w", err)
		}
	}
	return conn, probe(ctx, conn)
}

// probe returns an error unless the API server is ready.
func probe(ctx context.Context, conn *connection) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, conn.config.Host+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := conn.config.Transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the probe was answered with %s", response.Status)
	}
	return nil
}

func (c *clusterCache) set(cluster client.ObjectKey, conn *connection) {
	c.mu.Lock()
	if conn == nil {
		delete(c.connections, cluster)
	} else {
		c.connections[cluster] = conn
	}
	tell := slices.Clone(c.sources)
	c.mu.Unlock()
	if conn != nil {
		c.probed(cluster, true)
	}
	for _, t := range tell {
		t(cluster)
	}
}

func (c *clusterCache) probed(cluster client.ObjectKey, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.states[cluster]
	state.LastProbeTime = time.Now()
	state.ConsecutiveFailures++
	if ok {
		state.LastProbeSuccessTime, state.ConsecutiveFailures = state.LastProbeTime, 0
	}
	c.states[cluster] = state
}

func (c *clusterCache) of(cluster client.ObjectKey) (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.connections[cluster]; conn != nil {
		return conn, nil
	}
	return nil, clustercache.ErrClusterNotConnected
}

// GetClient implements clustercache.ClusterCache.
func (c *clusterCache) GetClient(_ context.Context, cluster client.ObjectKey) (client.Client, error) {
	conn, err := c.of(cluster)
	if err != nil {
		return nil, err
	}
	return conn.cached, nil
}

// GetReader implements clustercache.ClusterCache.
func (c *clusterCache) GetReader(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
	return c.GetClient(ctx, cluster)
}

// GetUncachedClient implements clustercache.ClusterCache.
func (c *clusterCache) GetUncachedClient(_ context.Context, cluster client.ObjectKey) (client.Client, error) {
	conn, err := c.of(cluster)
	if err != nil {
		return nil, err
	}
	return conn.live, nil
}

// GetRESTConfig implements clustercache.ClusterCache.
func (c *clusterCache) GetRESTConfig(_ context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	conn, err := c.of(cluster)
	if err != nil {
		return nil, err
	}
	return conn.config, nil
}

// Watch implements clustercache.ClusterCache.
func (c *clusterCache) Watch(_ context.Context, cluster client.ObjectKey, watcher clustercache.Watcher) error {
	conn, err := c.of(cluster)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.watches[watcher.Name()] {
		return nil
	}
	if err := watcher.Watch(conn.cache); err != nil {
		return err
	}
	conn.watches[watcher.Name()] = true
	return nil
}

// GetHealthCheckingState implements clustercache.ClusterCache.
func (c *clusterCache) GetHealthCheckingState(_ context.Context, cluster client.ObjectKey) clustercache.HealthCheckingState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.states[cluster]
}

// GetClusterSource implements clustercache.ClusterCache. The source sends requests when a connection is made or lost.
func (c *clusterCache) GetClusterSource(
	_ string, requests func(context.Context, client.Object) []ctrl.Request, _ ...clustercache.GetClusterSourceOption,
) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		tell := func(cluster client.ObjectKey) {
			object := &clusterv1.Cluster{}
			object.Namespace, object.Name = cluster.Namespace, cluster.Name
			for _, request := range requests(ctx, object) {
				queue.Add(request)
			}
		}
		c.sources = append(c.sources, tell)
		for _, cluster := range slices.SortedFunc(maps.Keys(c.connections), func(a, b client.ObjectKey) int { return strings.Compare(a.String(), b.String()) }) {
			tell(cluster)
		}
		return nil
	})
}

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
