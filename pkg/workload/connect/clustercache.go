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
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

// requestTimeout bounds each request to a workload cluster, except a cache's lists and watches.
const requestTimeout = 10 * time.Second

// Options say how workload clusters are reached.
type Options struct {
	// WatchFilter is the value of the label that Clusters must carry; empty means all.
	WatchFilter string
	// QPS and Burst bound the requests to each workload cluster. Concurrency is how many Clusters are connected, or probed, at a
	// time. To connect takes up to five minutes where an API server answers but does not list its Nodes.
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
	options := clustercache.Options{
		// Kubeconfigs are read when a connection is made and not kept: that takes the right to get Secrets, not to list them.
		SecretClient:     kubeconfigs{Reader: mgr.GetAPIReader(), refused: o.Refused},
		WatchFilterValue: o.WatchFilter,
		Client:           clustercache.ClientOptions{UserAgent: mgr.GetConfig().UserAgent, QPS: o.QPS, Burst: o.Burst, Timeout: requestTimeout},
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
	return clusterCache, nil
}
