// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/heirloom-dev/heirloom/pkg/broadcast"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// fakeManager is a manager that keeps the controllers that are added to it. It implements only the methods that Setup needs.
type fakeManager struct {
	ctrl.Manager
	cache       cache.Cache
	client      client.Client
	controllers []manager.Runnable
}

func (m *fakeManager) GetCache() cache.Cache          { return m.cache }
func (m *fakeManager) GetScheme() *runtime.Scheme     { return m.client.Scheme() }
func (m *fakeManager) GetRESTMapper() meta.RESTMapper { return m.client.RESTMapper() }
func (m *fakeManager) GetLogger() logr.Logger         { return logr.Discard() }

func (m *fakeManager) GetControllerOptions() config.Controller {
	return config.Controller{SkipNameValidation: ptr.To(true)}
}

func (m *fakeManager) Add(controller manager.Runnable) error {
	m.controllers = append(m.controllers, controller)
	return nil
}

// named returns the controller with this name, or nil.
func (m *fakeManager) named(name string) manager.Runnable {
	for _, controller := range m.controllers {
		if reflect.ValueOf(controller).Elem().FieldByName("Name").String() == name {
			return controller
		}
	}
	return nil
}

// informers is a cache without objects. Tests send its events.
type informers struct {
	cache.Cache
	scheme *runtime.Scheme

	mu     sync.Mutex
	byKind map[schema.GroupVersionKind]*informer
}

// informer locks its handlers, because several goroutines may add handlers.
type informer struct {
	*controllertest.FakeInformer
	mu sync.Mutex
}

func newInformers(scheme *runtime.Scheme) *informers {
	return &informers{scheme: scheme, byKind: map[schema.GroupVersionKind]*informer{}}
}

func (i *informers) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return i.of(object), nil
}

func (i *informers) WaitForCacheSync(context.Context) bool { return true }

// of returns the informer of the object's kind.
func (i *informers) of(object client.Object) *informer {
	gvk, err := apiutil.GVKForObject(object, i.scheme)
	if err != nil {
		panic(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.byKind[gvk] == nil {
		i.byKind[gvk] = &informer{FakeInformer: controllertest.NewFakeInformer(controllertest.Synced)}
	}
	return i.byKind[gvk]
}

func (i *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.FakeInformer.AddEventHandlerWithOptions(handler, options)
}

func (i *informer) Add(object client.Object) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.FakeInformer.Add(object)
}

func (i *informer) Update(before, after client.Object) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.FakeInformer.Update(before, after)
}

// workloads is a fake ClusterCache. A Cluster without an entry is not connected.
type workloads struct {
	clustercache.ClusterCache
	clients map[client.ObjectKey]client.Client
	// uncached are the clients without a cache, if they differ.
	uncached map[client.ObjectKey]client.Client
	// servers hold the stored objects of each Cluster.
	servers map[client.ObjectKey]client.Client
	// caches watch the Nodes of each Cluster. Without a cache, workloads only notes the watch.
	caches  map[client.ObjectKey]*informers
	watches sync.Map
	watched *journal
	// broken is the error of every call for a Cluster, and brokenUncached the error of calls for a client without a cache.
	broken         map[client.ObjectKey]error
	brokenUncached error
	// connected gets an event for each new connection to a Cluster.
	connected chan event.GenericEvent
	// probed is the time of the last answer to a probe of any Cluster.
	probed time.Time
}

func newWorkloads() *workloads {
	return &workloads{
		clients: map[client.ObjectKey]client.Client{}, uncached: map[client.ObjectKey]client.Client{}, servers: map[client.ObjectKey]client.Client{}, caches: map[client.ObjectKey]*informers{}, watched: &journal{},
		connected: make(chan event.GenericEvent), broken: map[client.ObjectKey]error{},
	}
}

func (w *workloads) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return clustercache.HealthCheckingState{LastProbeSuccessTime: w.probed}
}

func (w *workloads) GetClient(_ context.Context, cluster client.ObjectKey) (client.Client, error) {
	if err := w.broken[cluster]; err != nil {
		return nil, err
	}
	if c, ok := w.clients[cluster]; ok {
		return c, nil
	}
	return nil, clustercache.ErrClusterNotConnected
}

func (w *workloads) GetReader(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
	return w.GetClient(ctx, cluster)
}

func (w *workloads) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	if w.brokenUncached != nil {
		return nil, w.brokenUncached
	}
	if c, ok := w.uncached[cluster]; ok {
		return c, nil
	}
	return w.GetClient(ctx, cluster)
}

func (w *workloads) Watch(ctx context.Context, cluster client.ObjectKey, watcher clustercache.Watcher) error {
	if _, err := w.GetClient(ctx, cluster); err != nil {
		return err
	}
	w.watched.note(cluster.Name + ": " + watcher.Name())
	nodes := w.caches[cluster]
	if _, already := w.watches.LoadOrStore(cluster.Name+watcher.Name(), true); already || nodes == nil {
		return nil
	}
	return watcher.Watch(nodes)
}

func (w *workloads) GetClusterSource(
	_ string, wake func(context.Context, client.Object) []ctrl.Request, _ ...clustercache.GetClusterSourceOption,
) source.Source {
	return source.Channel(w.connected, handler.EnqueueRequestsFromMapFunc(wake))
}

// schemas are those of a provider whose control planes have all fields of the contract.
type schemas struct{ broadcast.Broadcaster }

func (s *schemas) ControlPlane(_ context.Context, gvk schema.GroupVersionKind) (inherit.Layout, error) {
	return inherit.ControlPlaneLayout(gvk.Version, func(...string) bool { return true }), nil
}
