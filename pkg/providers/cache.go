// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// grace is how long after the first look at a kind a read still waits for its list. Nearly every list is there by then,
	// and a kind that cannot be listed has cost each worker that much, once.
	grace = 500 * time.Millisecond
	// probing is how often, and for how long, the API server is asked why a kind is not listed yet.
	probing = 5 * time.Second
)

// Cache has an informer for each requested kind of a provider. A read of a kind that has not been listed
// yet fails with a NotListedError, at once or within the kind's grace. Its GetInformer is as that of any cache: unless it
// is told otherwise, it waits for the list, as a controller's source does, which adds its handler only then.
type Cache struct {
	cache.Cache
	live client.Reader
	// namespaces are those that informers list, or one that stands for all.
	namespaces []string

	mu    sync.Mutex
	kinds map[schema.GroupVersionKind]*kind
}

// New returns a cache for the kinds of providers. What the options say about single types and about new informers does not
// reach them.
func New(config *rest.Config, options cache.Options) (*Cache, error) {
	c := &Cache{namespaces: slices.Collect(maps.Keys(options.DefaultNamespaces)), kinds: map[schema.GroupVersionKind]*kind{}}
	if len(c.namespaces) == 0 {
		c.namespaces = []string{metav1.NamespaceAll}
	}
	options.ByObject, options.NewInformer = nil, c.newInformer
	var err error
	if c.Cache, err = cache.New(config, options); err != nil {
		return nil, fmt.Errorf("creating the cache of providers' kinds: %w", err)
	}
	c.live, err = client.New(config, client.Options{HTTPClient: options.HTTPClient, Scheme: options.Scheme, Mapper: options.Mapper})
	if err != nil {
		return nil, fmt.Errorf("creating the client that asks why kinds are not listed: %w", err)
	}
	return c, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica reads control planes.
func (c *Cache) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (c *Cache) Start(ctx context.Context) error {
	go wait.UntilWithContext(ctx, c.explain, probing)
	return c.Cache.Start(ctx)
}

// Get implements client.Reader.
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	gvk := into.GetObjectKind().GroupVersionKind()
	if _, err := c.GetInformer(ctx, into, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watching %s: %w", gvk.Kind, err)
	}
	if err := c.of(gvk).wait(ctx); err != nil {
		return err
	}
	return c.Cache.Get(ctx, key, into, options...)
}

// Listed returns the requested kinds, as "<kind>.<group>", and whether the API server has listed each.
func (c *Cache) Listed() map[string]bool {
	listed := map[string]bool{}
	for _, k := range c.all() {
		listed[k.String()] = k.listed()
	}
	return listed
}

func (c *Cache) of(gvk schema.GroupVersionKind) *kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kinds[gvk]
}

func (c *Cache) all() []*kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*kind, 0, len(c.kinds))
	for _, k := range c.kinds {
		all = append(all, k)
	}
	return all
}

// newInformer makes informers that tell about their kind. The example is the object that a caller reads into, and goes on
// to change.
func (c *Cache) newInformer(
	source toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	informer := toolscache.NewSharedIndexInformer(source, example.DeepCopyObject(), resync, indexers)
	k := &kind{gvk: example.GetObjectKind().GroupVersionKind(), since: time.Now(), synced: informer.HasSyncedChecker()}
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *toolscache.Reflector, err error) {
		toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
		k.because(err)
	})
	if err != nil {
		ctrl.Log.Error(err, "What this kind's informer is told will be in its own log only", "kind", k.String())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kinds[k.gvk] = k
	return informer
}

// explain finds out why kinds are not listed. Informers often cannot tell: an API server that cannot fill its own cache of a
// kind makes them wait without a word. A list of one object does not come from there.
func (c *Cache) explain(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, probing)
	defer cancel()
	var asked sync.WaitGroup
	for _, k := range slices.DeleteFunc(c.all(), (*kind).settled) {
		for _, namespace := range c.namespaces {
			asked.Go(func() {
				list := &metav1.PartialObjectMetadataList{}
				list.SetGroupVersionKind(k.gvk)
				err := c.live.List(bounded, list, client.InNamespace(namespace), client.Limit(1))
				if err != nil && ctx.Err() == nil {
					k.because(err)
				}
			})
		}
	}
	asked.Wait()
}
