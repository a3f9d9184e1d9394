// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

// retryInterval is how soon a workload cluster that could not be reached is tried again.
const retryInterval = 5 * time.Second

// Options say how workload clusters are reached.
type Options struct {
	// Version is the version of Cluster API that the management cluster serves.
	Version schema.GroupVersion
	// Namespace is the only one whose Clusters are reached; empty means all. WatchFilter is the value of the label that
	// Clusters must carry.
	Namespace, WatchFilter string
	UserAgent              string
	// QPS and Burst bound the requests to each workload cluster, Concurrency the Clusters that are seen to at a time.
	QPS         float32
	Burst       int
	Concurrency int
	SyncPeriod  time.Duration
	// Nodes are the indexes of the Nodes that are cached, TrimNode what is kept of each.
	Nodes    map[string]client.IndexerFunc
	TrimNode toolscache.TransformFunc
}

// NewClusterCache adds Cluster API's ClusterCache to the manager. It runs on the leader.
func NewClusterCache(ctx context.Context, mgr ctrl.Manager, o Options) (clustercache.ClusterCache, error) {
	clusters, err := newClusters(mgr, o)
	if err != nil {
		return nil, err
	}
	options := clustercache.Options{
		// Kubeconfigs are read when a connection is made and not kept: that takes the right to get Secrets, not to list them.
		SecretClient:     mgr.GetAPIReader(),
		WatchFilterValue: o.WatchFilter,
		Client:           clustercache.ClientOptions{UserAgent: o.UserAgent, QPS: o.QPS, Burst: o.Burst},
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
	// Cluster API has half a minute here, which for us is the time that a Node has waited for its taints.
	if c, ok := clusterCache.(interface{ SetConnectionCreationRetryInterval(time.Duration) }); ok {
		c.SetConnectionCreationRetryInterval(retryInterval)
	}
	return clusterCache, nil
}

// clusters is a manager that knows Cluster API's own type of Cluster, which the ClusterCache reads. All the rest of the
// program has one of its own, for it is the same in every version of the API.
type clusters struct {
	ctrl.Manager
	typed cluster.Cluster
}

// GetClient implements manager.Manager.
func (c clusters) GetClient() client.Client { return c.typed.GetClient() }

// GetCache implements manager.Manager.
func (c clusters) GetCache() cache.Cache { return c.typed.GetCache() }

// GetScheme implements manager.Manager. It is also the scheme of the clients of workload clusters.
func (c clusters) GetScheme() *runtime.Scheme { return c.typed.GetScheme() }

func newClusters(mgr ctrl.Manager, o Options) (clusters, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return clusters{}, fmt.Errorf("registering Kubernetes' types: %w", err)
	}
	scheme.AddKnownTypes(o.Version, &clusterv1.Cluster{}, &clusterv1.ClusterList{})
	metav1.AddToGroupVersion(scheme, o.Version)
	c, err := cluster.New(mgr.GetConfig(), func(options *cluster.Options) {
		options.Scheme = scheme
		options.Logger = mgr.GetLogger()
		options.Cache = cache.Options{DefaultTransform: trimmer(o.Version), SyncPeriod: &o.SyncPeriod}
		if o.Namespace != "" {
			options.Cache.DefaultNamespaces = map[string]cache.Config{o.Namespace: {}}
		}
	})
	if err != nil {
		return clusters{}, fmt.Errorf("creating the client of Clusters: %w", err)
	}
	if err := mgr.Add(c); err != nil {
		return clusters{}, fmt.Errorf("adding the client of Clusters: %w", err)
	}
	return clusters{Manager: mgr, typed: c}, nil
}

// trimmer keeps what the ClusterCache reads: whether there is an API server to connect to. In v1beta1 another field says
// that, so there a connection is tried at once.
func trimmer(version schema.GroupVersion) toolscache.TransformFunc {
	return func(object any) (any, error) {
		c, ok := object.(*clusterv1.Cluster)
		if !ok {
			return object, nil
		}
		provisioned := c.Status.Initialization.InfrastructureProvisioned
		if version != clusterv1.GroupVersion {
			provisioned = ptr.To(true)
		}
		c.Annotations, c.ManagedFields, c.Spec = nil, nil, clusterv1.ClusterSpec{}
		c.Status = clusterv1.ClusterStatus{Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: provisioned}}
		return c, nil
	}
}
