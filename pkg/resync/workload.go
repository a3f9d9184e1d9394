// SPDX-License-Identifier: Apache-2.0

package resync

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
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// workloadReconciler handles each workload cluster as a whole: once it is connected, Heirloom watches its Nodes, and admits
// them in the way that was chosen.
type workloadReconciler struct {
	Dependencies
	// watches is the controller of Nodes, and nodes what it runs.
	watches clustercache.SourceWatcher[NodeRequest]
	nodes   nodeReconciler
	// connected and disconnected are all Clusters there are.
	connected, disconnected *tracked[types.NamespacedName]
	// found and rivals are Clusters with an Event that they are the management cluster itself, or that several claim to be.
	found, rivals *tracked[types.NamespacedName]
}

// Reconcile implements reconcile.Reconciler.
func (r workloadReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &capi.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			for _, node := range r.nodes.remembered(req.NamespacedName) {
				r.nodes.forget(node, false) // nothing will ask about it again
			}
			r.count(req.NamespacedName, false, false)
			r.Admission.Forget(req.NamespacedName)
			r.found.set(req.NamespacedName, false)
			r.rivals.set(req.NamespacedName, false)
		}
		return ctrl.Result{}, gone(err, "Cluster")
	}
	r.tellClaim(cluster)
	err := r.watch(ctx, req.NamespacedName)
	r.count(req.NamespacedName, err == nil, err != nil)
	var again time.Duration
	if err == nil {
		again, err = r.admit(ctx, cluster)
	}
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return ctrl.Result{}, nil // the connection will wake it
	}
	return ctrl.Result{RequeueAfter: again}, err
}

func (r workloadReconciler) count(cluster types.NamespacedName, connected, disconnected bool) {
	r.connected.set(cluster, connected)
	r.disconnected.set(cluster, disconnected)
	r.Metrics.WorkloadClusters(len(r.connected.all()), len(r.disconnected.all()))
}

func (r workloadReconciler) watch(ctx context.Context, cluster types.NamespacedName) error {
	err := r.Workloads.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.TypedWatcherOptions[client.Object, NodeRequest]{
		Name: "heirloom-nodes", Watcher: reconnected{r.watches, r.nodes, cluster}, Kind: &corev1.Node{}, EventHandler: itself(cluster),
		Predicates: []predicate.Predicate{changed()},
	}))
	if err != nil {
		return fmt.Errorf("watching the Nodes of the workload cluster: %w", err)
	}
	return nil
}

// reconnected watches the Nodes of a workload cluster, which happens once for each connection. No event reports Nodes that were
// deleted while there was none, so the remembered ones are reconciled.
type reconnected struct {
	clustercache.SourceWatcher[NodeRequest]
	nodes   nodeReconciler
	cluster types.NamespacedName
}

// Watch implements clustercache.SourceWatcher.
func (w reconnected) Watch(nodes source.TypedSource[NodeRequest]) error {
	if err := w.SourceWatcher.Watch(nodes); err != nil {
		return err
	}
	remembered := w.nodes.remembered(w.cluster)
	return w.SourceWatcher.Watch(source.TypedFunc[NodeRequest](func(_ context.Context, queue workqueue.TypedRateLimitingInterface[NodeRequest]) error {
		for _, node := range remembered {
			queue.Add(node)
		}
		return nil
	}))
}

// admit sets up the chosen way to admit the Nodes of the Cluster; again is when to check, if it takes time. A Cluster that is
// paused, or that a watch filter leaves to another instance, stays as it is; one that is opted out or being deleted is left to
// the loop.
func (r workloadReconciler) admit(ctx context.Context, cluster *capi.Cluster) (again time.Duration, err error) {
	if len(r.Admission.Ways) == 0 || inherit.Paused(cluster) || r.Policy().LeftToAnother(cluster) {
		return 0, nil
	}
	way, key := r.Admission.Of(cluster), client.ObjectKeyFromObject(cluster)
	// The management cluster's own Nodes are admitted by the webhooks that are installed beside the program.
	if _, skipped := r.Policy().Skips(cluster, nil); skipped || r.Chain.IsManagementCluster(key) {
		way = workload.AdmitByLoop
	}
	server, err := r.Workloads.GetUncachedClient(ctx, key)
	if err != nil {
		return 0, fmt.Errorf("reaching the workload cluster: %w", err)
	}
	return r.Admission.Ensure(ctx, server, webhook.IdentityOf(cluster), way, func(reason, note string) {
		kind := corev1.EventTypeWarning
		if reason == workload.ReasonRegistered || reason == workload.ReasonRemoved {
			kind = corev1.EventTypeNormal
		}
		if reason != workload.ReasonForeign {
			r.Recorder.Eventf(cluster, nil, kind, reason, "Admit", "%.1000s", note) // an API server takes no more than 1024 bytes
		}
	})
}

// parametersEvery is how long a change of a Machine waits for others before the parameters of a policy are written. A new Machine must
// be among them before its Node registers, so it is short.
const parametersEvery = time.Second

// admittedByPolicy wakes the Cluster of a Machine without a Node if the parameters of a policy must follow the Machine. The queue
// keeps the earliest of several times.
func (d Dependencies) admittedByPolicy() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	wake := func(ctx context.Context, q queue, versions ...client.Object) {
		for _, version := range versions {
			m, ok := version.(*capi.Machine)
			if !ok || m.Status.NodeRef.Name != "" {
				continue
			}
			cluster, err := d.Chain.Cluster(ctx, m.Namespace, m.Spec.ClusterName)
			switch {
			case err != nil:
				ctrl.LoggerFrom(ctx).Error(err, "Failed to find the Cluster of a changed Machine", "Machine", klog.KObj(m))
			case cluster != nil && d.Admission.FollowsMachines(cluster):
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

// KubeconfigRefused returns a function that reports on a Cluster why its kubeconfig is refused. The reader has the Clusters.
func KubeconfigRefused(reader client.Reader, recorder events.EventRecorder) func(context.Context, types.NamespacedName, error) {
	return func(ctx context.Context, key types.NamespacedName, err error) {
		cluster := &capi.Cluster{}
		if reader.Get(ctx, key, cluster) == nil { // otherwise there is no object for the Event; the log has it, too
			recorder.Eventf(cluster, nil, corev1.EventTypeWarning, reasonKubeconfigRefused, "Connect",
				"The kubeconfig in the Secret %s-kubeconfig is refused, so no Node of the workload cluster inherits: %v", key.Name, err)
		}
	}
}

// connections wakes a Cluster when its connection is made or lost.
func (d Dependencies) connections(_ context.Context, cluster client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(cluster)}}
}

// clusterChanged passes events of a Cluster after which its Nodes may be admitted in another way.
func clusterChanged() predicate.Predicate {
	return predicate.Or[client.Object](resynced(),
		predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.GenerationChangedPredicate{})
}
