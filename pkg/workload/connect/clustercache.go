// SPDX-License-Identifier: Apache-2.0

// Package connect makes the connections to the workload clusters of a fleet, through Cluster API's own ClusterCache: one connection for
// each Cluster, made from the Secret <cluster>-kubeconfig, watched by health probes, and renewed when it breaks. The cache of a workload
// cluster holds its Nodes, trimmed to the fields that the rules read.
package connect

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

// requestTimeout bounds each request to a workload cluster, except a cache's lists and watches.
const requestTimeout = 10 * time.Second

// Options configure the connections to workload clusters.
type Options struct {
	// WatchFilter is the value of the label that Clusters must carry; empty means all.
	WatchFilter string
	// QPS and Burst limit the requests to each workload cluster. Concurrency is the number of Clusters that are connected, or probed, at the
	// same time. A connection takes up to five minutes if an API server answers but does not list its Nodes.
	QPS         float32
	Burst       int
	Concurrency int
	SyncPeriod  time.Duration
	// Nodes are the indexes of the cached Nodes. TrimNode drops the fields that no rule reads.
	Nodes    map[string]client.IndexerFunc
	TrimNode toolscache.TransformFunc
	// Refused is called for a kubeconfig that asks for something forbidden, such as a file of this machine. It may be nil.
	Refused func(ctx context.Context, cluster types.NamespacedName, err error)
}

// NewClusterCache adds Cluster API's ClusterCache to the manager. It runs on the leader. It reconnects after half a minute, also after a
// kubeconfig was refused: it has no option for this time.
func NewClusterCache(ctx context.Context, mgr ctrl.Manager, o Options) (clustercache.ClusterCache, error) {
	options := clustercache.Options{
		// A kubeconfig is read for each connection, and is not cached: this needs the right to get Secrets, not to list them.
		SecretClient: kubeconfigs{Reader: mgr.GetAPIReader(), refused: o.Refused},
		// Unlike WatchFilterValue, it also ends the connection to a Cluster that gets another label.
		ClusterFilter: func(cluster *clusterv1.Cluster) bool {
			return o.WatchFilter == "" || labels.HasWatchLabel(cluster, o.WatchFilter)
		},
		Client: clustercache.ClientOptions{UserAgent: mgr.GetConfig().UserAgent, QPS: o.QPS, Burst: o.Burst, Timeout: requestTimeout},
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
