// SPDX-License-Identifier: Apache-2.0

// Package connect reaches the workload clusters of a fleet, through Cluster API's own ClusterCache: one connection for
// each Cluster, made from the Secret <cluster>-kubeconfig, watched by health probes, and renewed when it breaks. What is
// cached of a workload cluster is its Nodes, trimmed to what the rules read.
package connect

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// requestTimeout bounds each request to a workload cluster, except a cache's lists and watches.
const requestTimeout = 10 * time.Second

// Options say how workload clusters are reached.
type Options struct {
	// Version is the version of Cluster API that the management cluster serves.
	Version schema.GroupVersion
	// WatchFilter is the value of the label that Clusters must carry; empty means all.
	WatchFilter string
	UserAgent   string
	// QPS and Burst bound the requests to each workload cluster. Concurrency is how many Clusters are connected, or probed, at a
	// time. To connect takes up to a minute where an API server does not answer.
	QPS         float32
	Burst       int
	Concurrency int
	SyncPeriod  time.Duration
	// Nodes are the indexes of the Nodes that are cached, TrimNode what is kept of each.
	Nodes    map[string]client.IndexerFunc
	TrimNode toolscache.TransformFunc
	// Refused is called for a kubeconfig that asks for something forbidden, such as a file of this machine. It may be nil.
	Refused func(ctx context.Context, cluster types.NamespacedName, err error)
}

// NewClusterCache adds Cluster API's ClusterCache to the manager. It runs on the leader. It connects again after half a minute, also
// where a kubeconfig was refused: there is no option for another time.
func NewClusterCache(ctx context.Context, mgr ctrl.Manager, o Options) (clustercache.ClusterCache, error) {
	clusters, err := newClusters(mgr, o.Version)
	if err != nil {
		return nil, err
	}
	options := clustercache.Options{
		// Kubeconfigs are read when a connection is made and not kept: that takes the right to get Secrets, not to list them.
		SecretClient:     kubeconfigs{Reader: mgr.GetAPIReader(), refused: o.Refused},
		WatchFilterValue: o.WatchFilter,
		Client:           clustercache.ClientOptions{UserAgent: o.UserAgent, QPS: o.QPS, Burst: o.Burst, Timeout: requestTimeout},
		Cache: clustercache.CacheOptions{
			SyncPeriod: &o.SyncPeriod,
			ByObject:   map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: o.TrimNode}},
		},
	}
	for field, values := range o.Nodes {
		options.Cache.Indexes = append(options.Cache.Indexes, clustercache.CacheOptionsIndex{
			Object: &corev1.Node{}, Field: field, ExtractValue: values,
		})
	}
	clusterCache, err := clustercache.SetupWithManager(ctx, clusters, options, controller.Options{MaxConcurrentReconciles: o.Concurrency})
	if err != nil {
		return nil, fmt.Errorf("setting up the cache of workload clusters: %w", err)
	}
	return clusterCache, nil
}

// clusters is a manager for the ClusterCache, which reads Clusters as Cluster API's own type in its newest version. That type
// cannot decode what older versions have in status, and one Cluster that cannot be decoded fails the LIST of all. So the
// ClusterCache gets what it reads from the program's own, trimmed Clusters, and there is no second copy of them.
type clusters struct {
	ctrl.Manager
	scheme *runtime.Scheme
}

func newClusters(mgr ctrl.Manager, version schema.GroupVersion) (clusters, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return clusters{}, fmt.Errorf("registering Kubernetes' types: %w", err)
	}
	scheme.AddKnownTypes(version, &clusterv1.Cluster{}, &clusterv1.ClusterList{})
	metav1.AddToGroupVersion(scheme, version)
	return clusters{Manager: mgr, scheme: scheme}, nil
}

// GetScheme implements manager.Manager. It is also the scheme of the clients of workload clusters.
func (c clusters) GetScheme() *runtime.Scheme { return c.scheme }

// GetClient implements manager.Manager.
func (c clusters) GetClient() client.Client { return clusterClient{c.Manager.GetClient()} }

// GetCache implements manager.Manager.
func (c clusters) GetCache() cache.Cache { return clusterEvents{c.Manager.GetCache()} }

// clusterClient reads Clusters out of the program's cache: their metadata, and whether they have an API server.
type clusterClient struct{ client.Client }

// Get implements client.Reader.
func (c clusterClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	full, ok := object.(*clusterv1.Cluster)
	if !ok {
		return c.Client.Get(ctx, key, object, options...)
	}
	trimmed := &capi.Cluster{}
	if err := c.Client.Get(ctx, key, trimmed, options...); err != nil {
		return err
	}
	*full = clusterv1.Cluster{ObjectMeta: trimmed.ObjectMeta}
	full.Status.Initialization.InfrastructureProvisioned = ptr.To(trimmed.Status.HasAPIServer())
	return nil
}

// clusterEvents is the program's cache. It serves events of trimmed Clusters in place of those of full ones, because their
// handlers look at metadata only.
type clusterEvents struct{ cache.Cache }

// GetInformer implements cache.Informers.
func (c clusterEvents) GetInformer(ctx context.Context, object client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	if _, ok := object.(*clusterv1.Cluster); ok {
		object = &capi.Cluster{}
	}
	return c.Cache.GetInformer(ctx, object, options...)
}
