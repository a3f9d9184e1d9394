// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

const (
	// requestTimeout bounds each request to a workload cluster, except a cache's lists and watches.
	requestTimeout = 10 * time.Second
	// retryInterval is how soon a workload cluster that could not be reached is tried again.
	retryInterval = 5 * time.Second
)

// Options say how workload clusters are reached.
type Options struct {
	// WatchFilter is the value of the label that Clusters must carry; empty means all.
	WatchFilter string
	UserAgent   string
	// QPS and Burst bound the requests to each workload cluster, Concurrency the Clusters that are connected at a time, as long as
	// API servers answer. API servers that do not answer do not hold up the others.
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

// NewClusterCache adds Cluster API's ClusterCache to the manager. It runs on the leader.
func NewClusterCache(ctx context.Context, mgr ctrl.Manager, o Options) (clustercache.ClusterCache, error) {
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
	clusterCache, err := clustercache.SetupWithManager(ctx, mgr, options, controller.Options{MaxConcurrentReconciles: o.Concurrency})
	if err != nil {
		return nil, fmt.Errorf("setting up the cache of workload clusters: %w", err)
	}
	// Cluster API waits half a minute here. For Heirloom, a Node would wait that long for its taints.
	if c, ok := clusterCache.(interface{ SetConnectionCreationRetryInterval(time.Duration) }); ok {
		c.SetConnectionCreationRetryInterval(retryInterval)
	}
	return clusterCache, nil
}
