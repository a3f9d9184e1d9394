// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// workloads sees to each workload cluster as a whole: once it is connected, its Nodes are watched.
type workloads struct {
	Dependencies
	nodes clustercache.SourceWatcher[NodeRequest]
}

// Reconcile implements reconcile.Reconciler.
func (r workloads) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &capi.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, gone(err, "Cluster")
	}
	err := r.Workloads.Watch(ctx, req.NamespacedName, clustercache.NewWatcher(clustercache.TypedWatcherOptions[client.Object, NodeRequest]{
		Name: "heirloom-nodes", Watcher: r.nodes, Kind: &corev1.Node{}, EventHandler: itself(req.NamespacedName),
		Predicates: []predicate.Predicate{nodeChanged()},
	}))
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return ctrl.Result{}, nil // the connection will wake it
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("watching the Nodes of the workload cluster: %w", err)
	}
	return ctrl.Result{}, nil
}

// connections wakes a Cluster when its connection is made or lost.
func (d Dependencies) connections(_ context.Context, cluster client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: cluster.GetNamespace(), Name: cluster.GetName()}}}
}
