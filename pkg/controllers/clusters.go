// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// clusterTimeout limits the time of all requests about a workload cluster as a whole.
const clusterTimeout = 30 * time.Second

// workloadClusters reconciles each workload cluster as a whole: once it is connected, Heirloom watches its Nodes, and admits them in the
// chosen way.
type workloadClusters struct {
	*Dependencies
	// watches is the controller of Nodes, nodes its reconciler.
	watches clustercache.SourceWatcher[NodeRequest]
	nodes   *nodes
	// connected and disconnected hold the connected and the disconnected Clusters: a set with a single member for each Cluster.
	connected, disconnected *nodeSet
}

// Reconcile implements reconcile.Reconciler.
func (r workloadClusters) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
		}
		return ctrl.Result{}, gone(err, "Cluster")
	}
	if r.Policy().LeftToAnother(cluster) {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	err := r.watch(ctx, req.NamespacedName)
	r.count(req.NamespacedName, err == nil, err != nil)
	var again time.Duration
	if err == nil {
		again, err = r.admit(ctx, cluster)
	}
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return ctrl.Result{}, nil // the connection will enqueue it
	}
	return ctrl.Result{RequeueAfter: again}, err
}

func (r workloadClusters) forget(cluster types.NamespacedName) {
	r.nodes.forgetAll(cluster)
	r.count(cluster, false, false)
	r.Admission.Forget(cluster)
}

func (r workloadClusters) count(cluster types.NamespacedName, connected, disconnected bool) {
	member := NodeRequest{Cluster: cluster}
	r.connected.set(member, connected)
	r.disconnected.set(member, disconnected)
	_, all := r.connected.counts(cluster)
	_, none := r.disconnected.counts(cluster)
	r.Metrics.WorkloadClusters(all, none)
}

func (r workloadClusters) watch(ctx context.Context, cluster types.NamespacedName) error {
	if cluster == r.ManagementCluster {
		return nil // the manager's cache has its Nodes
	}
	err := r.Workloads.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.TypedWatcherOptions[client.Object, NodeRequest]{
		Name: "heirloom-nodes", Watcher: reconnected{r.watches, r.nodes, cluster}, Kind: &corev1.Node{}, EventHandler: itself(cluster),
		Predicates: []predicate.Predicate{changed()},
	}))
	if err != nil {
		return fmt.Errorf("watching the Nodes of the workload cluster: %w", err)
	}
	return nil
}

// reconnected watches the Nodes of a workload cluster, once for each connection. No event reports Nodes that were deleted while there was
// no connection, so all Nodes that the loop remembers are reconciled.
type reconnected struct {
	clustercache.SourceWatcher[NodeRequest]
	nodes   *nodes
	cluster types.NamespacedName
}

// Watch implements clustercache.SourceWatcher.
func (w reconnected) Watch(all source.TypedSource[NodeRequest]) error {
	if err := w.SourceWatcher.Watch(all); err != nil {
		return err
	}
	w.nodes.rollouts.reconnected(w.cluster)
	known := w.nodes.known(w.cluster)
	return w.SourceWatcher.Watch(source.TypedFunc[NodeRequest](func(_ context.Context, queue workqueue.TypedRateLimitingInterface[NodeRequest]) error {
		for _, node := range known {
			queue.Add(node)
		}
		return nil
	}))
}

// admit sets up the chosen way to admit the Nodes of the Cluster; again is the time until the next check, if the set-up takes time. A
// Cluster that is paused stays as it is. A Cluster with IgnoreLabel, or not enrolled, only observed or being deleted is left to the loop, and
// the management cluster to the installed webhooks.
func (r workloadClusters) admit(ctx context.Context, cluster *clusterv1.Cluster) (again time.Duration, err error) {
	if len(r.Admission.Ways) == 0 || inherit.Paused(cluster) {
		return 0, nil
	}
	way := r.Admission.Of(cluster)
	_, observed, enrolled, err := r.Chain.Observes(ctx, cluster, r.Policy())
	if err != nil {
		return 0, fmt.Errorf("reading the mode of the Cluster: %w", err)
	}
	if _, skipped := r.Policy().Skips(cluster, nil); skipped || observed || !enrolled || client.ObjectKeyFromObject(cluster) == r.ManagementCluster {
		way = inherit.AdmitByLoop
	}
	server, err := r.Workloads.GetUncachedClient(ctx, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return 0, fmt.Errorf("reaching the workload cluster: %w", err)
	}
	return r.Admission.Ensure(ctx, server, webhook.IdentityOf(cluster), way, func(reason, note string) {
		kind := corev1.EventTypeWarning
		if reason == workload.ReasonRegistered || reason == workload.ReasonRemoved {
			kind = corev1.EventTypeNormal
		}
		r.Recorder.Eventf(cluster, nil, kind, reason, "Admit", "%s", note)
	})
}

// admittedByPolicy enqueues the Cluster of a Machine without a Node, if the parameters of a MutatingAdmissionPolicy must follow the
// Machine. Of several delays, the queue keeps the shortest.
func (d *Dependencies) admittedByPolicy() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	wake := func(ctx context.Context, q queue, versions ...client.Object) {
		for _, version := range versions {
			m, ok := version.(*clusterv1.Machine)
			if !ok || m.Status.NodeRef.Name != "" || !policy.Findable(m) {
				continue
			}
			cluster, err := d.Chain.Cluster(ctx, m.Namespace, m.Spec.ClusterName)
			switch {
			case err != nil:
				ctrl.LoggerFrom(ctx).Error(err, "Failed to find the Cluster of a changed Machine", "Machine", klog.KObj(m))
			case cluster != nil && client.ObjectKeyFromObject(cluster) != d.ManagementCluster && d.Admission.FollowsMachines(cluster):
				q.AddAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}, parametersEvery)
			}
			return
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { wake(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { wake(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { wake(ctx, q, e.Object) },
	}
}

// KubeconfigRefused returns a function that records an Event on a Cluster whose kubeconfig is refused, with the reason. The reader has
// the Clusters.
func KubeconfigRefused(reader client.Reader, recorder events.EventRecorder) func(context.Context, types.NamespacedName, error) {
	return func(ctx context.Context, key types.NamespacedName, err error) {
		cluster := &clusterv1.Cluster{}
		if reader.Get(ctx, key, cluster) == nil { // otherwise there is no object for the Event; the log also has it
			recorder.Eventf(cluster, nil, corev1.EventTypeWarning, reasonKubeconfigRefused, "Connect",
				"The kubeconfig in the Secret %s-kubeconfig is refused, so Nodes of the workload cluster inherit nothing: %v", key.Name, err)
		}
	}
}
