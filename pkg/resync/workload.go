// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// NodeAdmission makes Nodes of a workload cluster inherit in the write that creates them.
type NodeAdmission interface {
	// Ensure sets it up. The client reads from the workload cluster's API server.
	Ensure(ctx context.Context, server client.Client, cluster webhook.Identity) error
	// Remove takes it away, if it is there.
	Remove(ctx context.Context, server client.Client, cluster webhook.Identity) error
}

// Admissions are the ways to admit the Nodes of workload clusters.
type Admissions struct {
	// Default is the name of the one for Clusters that do not say.
	Default string
	// Ways are those that there are, by name.
	Ways map[string]NodeAdmission
	// Changes gets an event whenever all of them are to be looked at again.
	Changes <-chan event.GenericEvent
}

// of returns the name of the way in which the Nodes of the Cluster are to be admitted.
func (a Admissions) of(cluster *capi.Cluster) string {
	if way, ok := cluster.Labels[workload.AdmissionLabel]; ok {
		return way
	}
	return a.Default
}

// workloads sees to each workload cluster as a whole: once it is connected, its Nodes are watched, and admitted in the way
// that was chosen.
type workloads struct {
	Dependencies
	// watches is the controller of Nodes, and nodes what it runs.
	watches clustercache.SourceWatcher[NodeRequest]
	nodes   nodes
	// connected and disconnected are all Clusters there are.
	connected, disconnected *roll[types.NamespacedName]
	// found and rivals are those of which has been told that they are the management cluster itself, or seem to be.
	found, rivals *roll[types.NamespacedName]
}

// Reconcile implements reconcile.Reconciler.
func (r workloads) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &capi.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			for _, node := range r.nodes.remembered(req.NamespacedName) {
				r.nodes.forget(node) // nobody will ask about it again
				r.nodes.ignored.set(node, false)
			}
			r.count(req.NamespacedName, false, false)
			r.automatic.forget(req.NamespacedName)
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

func (r workloads) count(cluster types.NamespacedName, connected, disconnected bool) {
	r.connected.set(cluster, connected)
	r.disconnected.set(cluster, disconnected)
	all := func(types.NamespacedName) bool { return true }
	r.Metrics.WorkloadClusters(r.connected.count(all), r.disconnected.count(all))
}

func (r workloads) watch(ctx context.Context, cluster types.NamespacedName) error {
	err := r.Workloads.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.TypedWatcherOptions[client.Object, NodeRequest]{
		Name: "heirloom-nodes", Watcher: r.watches, Kind: &corev1.Node{}, EventHandler: itself(cluster),
		Predicates: []predicate.Predicate{nodeChanged()},
	}))
	if err != nil {
		return fmt.Errorf("watching the Nodes of the workload cluster: %w", err)
	}
	// Nobody tells of Nodes that went while there was no connection, so those that are remembered are looked at.
	remembered := r.nodes.remembered(cluster)
	if len(remembered) == 0 {
		return nil
	}
	return r.watches.Watch(source.TypedFunc[NodeRequest](func(_ context.Context, queue workqueue.TypedRateLimitingInterface[NodeRequest]) error {
		for _, node := range remembered {
			queue.Add(node)
		}
		return nil
	}))
}

// admit sets one way up and then takes the others away, once API servers have heard of the one, so that there is no moment
// without any; again is when that is, if it is not yet. A paused Cluster is left as it is; one that is opted out or being
// deleted has none.
func (r workloads) admit(ctx context.Context, cluster *capi.Cluster) (again time.Duration, err error) {
	if len(r.Admissions.Ways) == 0 || inherit.Paused(cluster) {
		return 0, nil
	}
	chosen := r.Admissions.of(cluster)
	key := client.ObjectKeyFromObject(cluster)
	// The management cluster's own Nodes are admitted by the webhooks that are installed beside the program.
	if _, skipped := r.Policy().Skips(cluster, nil); skipped || r.Chain.IsManagementCluster(key) {
		chosen = ""
	}
	server, err := r.Workloads.GetUncachedClient(ctx, key)
	if err != nil {
		return 0, fmt.Errorf("reaching the workload cluster: %w", err)
	}
	others := slices.Sorted(maps.Keys(r.Admissions.Ways))
	if chosen == workload.AdmitAutomatically {
		if chosen, others, err = r.automatically(ctx, cluster, server); err != nil {
			return 0, err // what is there stays
		}
	} else {
		r.automatic.manual(key)
		err = r.asChosen(ctx, cluster, server, chosen)
	}
	_, there := r.Admissions.Ways[chosen]
	if again := r.automatic.hears(key); there && again > 0 {
		return again, err
	}
	errs := []error{err}
	for _, name := range others {
		if _, there := r.Admissions.Ways[name]; there && name != chosen {
			errs = append(errs, r.way(ctx, cluster, server, name, false))
		}
	}
	return 0, errors.Join(errs...)
}

// asChosen sets up the way that an operator has chosen.
func (r workloads) asChosen(ctx context.Context, cluster *capi.Cluster, server client.Client, chosen string) error {
	if _, there := r.Admissions.Ways[chosen]; there {
		return r.way(ctx, cluster, server, chosen, true)
	}
	if chosen != "" && chosen != workload.AdmitByLoop {
		r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, reasonUnknownWorkloadAdmission, "Admit",
			"Label %s: Nodes cannot be admitted by %q; see --workload-admission and --workload-webhook-url", workload.AdmissionLabel, chosen)
	}
	return nil
}

// way sets one way to admit Nodes up or takes it away, and tells so on the Cluster.
func (r workloads) way(ctx context.Context, cluster *capi.Cluster, server client.Client, name string, chosen bool) error {
	watched := &registrations{Client: server}
	way, identity := r.Admissions.Ways[name], webhook.IdentityOf(cluster)
	var err error
	if chosen {
		err = way.Ensure(ctx, watched, identity)
	} else if err = way.Remove(ctx, watched, identity); apierrors.IsForbidden(err) {
		err = nil // whoever may not even look has not set it up
	}
	if watched.written {
		r.automatic.registered(identity.NamespacedName)
	}
	if r.Admissions.of(cluster) == workload.AdmitAutomatically && refused(err) {
		return err // which is told as the reason for another way
	}
	watched.tell(r.Recorder, cluster, name, err)
	return err
}

// admittedByPolicy wakes the Cluster of a Machine if the parameters of a policy are to follow the Machine.
func (d Dependencies) admittedByPolicy(ctx context.Context, object client.Object) ([]types.NamespacedName, error) {
	m, ok := object.(*capi.Machine)
	if !ok {
		return nil, fmt.Errorf("expected a Machine, got %T", object)
	}
	cluster, err := d.Chain.Cluster(ctx, m.Namespace, m.Spec.ClusterName)
	if err != nil || cluster == nil {
		return nil, err
	}
	key, way := client.ObjectKeyFromObject(cluster), d.Admissions.of(cluster)
	if way != workload.AdmitByPolicy && (way != workload.AdmitAutomatically || !d.automatic.mayBe(key, workload.AdmitByPolicy)) {
		return nil, nil
	}
	return []types.NamespacedName{key}, nil
}

// KubeconfigRefused returns what tells on a Cluster that its kubeconfig is refused, and why. The reader has the Clusters.
func KubeconfigRefused(reader client.Reader, recorder events.EventRecorder) func(context.Context, types.NamespacedName, error) {
	return func(ctx context.Context, key types.NamespacedName, err error) {
		cluster := &capi.Cluster{}
		if reader.Get(ctx, key, cluster) == nil { // otherwise there is nothing to tell it on; the log has it, too
			recorder.Eventf(cluster, nil, corev1.EventTypeWarning, reasonKubeconfigRefused, "Connect",
				"The kubeconfig in the Secret %s-kubeconfig is refused, so no Node of the workload cluster inherits: %v", key.Name, err)
		}
	}
}

// connections wakes a Cluster when its connection is made or lost.
func (d Dependencies) connections(_ context.Context, cluster client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: cluster.GetNamespace(), Name: cluster.GetName()}}}
}

// clusterChanged passes events of a Cluster after which its Nodes may be admitted in another way.
func clusterChanged() predicate.Predicate {
	return predicate.Or[client.Object](resynced(),
		predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.GenerationChangedPredicate{})
}
