// SPDX-License-Identifier: Apache-2.0

// Package controllers is the resync loop behind the webhooks. It runs on the leader, on every change of an owner or a child and every
// sync period, and applies the same rules: to objects that existed before Heirloom, to children of owners that have changed, and to
// writes that admission had to let pass.
package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/workload"
)

const (
	// workers is the number of objects of a kind that are reconciled at a time, remoteWorkers the number of Nodes, and of workload clusters.
	// The API servers of workload clusters may hang, so remoteWorkers is large: a hundred of them leave some workers (see furtherSlots).
	// perCluster is the number of workers that may write Nodes of the same cluster.
	workers, remoteWorkers, perCluster = 10, 200, 16
	// fastRetry is the time until the first retry of a failed reconcile. For a workload cluster as a whole, it is slowRetry.
	fastRetry = 50 * time.Millisecond
	// graceTime is the time for which the loop leaves writes to Cluster API's controllers, which apply 20 objects a second.
	graceTime = 30 * time.Second
	// parametersEvery is the time between a change of a Machine and the write of the parameters of a MutatingAdmissionPolicy, which then
	// contains the changes of other Machines as well. It is short, because the parameters must contain a new Machine before its Node registers.
	parametersEvery = time.Second
)

// Dependencies are shared by all controllers.
type Dependencies struct {
	Client client.Client
	// Live reads objects that caches do not hold from the API server.
	Live     client.Reader
	Chain    *owners.Chain
	Metrics  *metrics.Metrics
	Recorder events.EventRecorder
	// SchemaChanges returns a channel that gets an event whenever a schema of control planes has changed.
	SchemaChanges func() <-chan event.GenericEvent
	// NoExecute says how existing Nodes get taints that evict Pods.
	NoExecute inherit.NoExecute
	// Workloads has the connections to workload clusters; nil if Heirloom handles no workload cluster.
	Workloads clustercache.ClusterCache
	// ManagementCluster is the Cluster whose Nodes are in the API server of Client; empty if there is none.
	ManagementCluster types.NamespacedName
	// Admission admits the Nodes of workload clusters.
	Admission *workload.Admission
	// ProviderGroups are the API groups of infrastructure and bootstrap providers.
	ProviderGroups []string
	// Policy returns the current policy. PolicyChanges returns a channel that gets an event whenever the policy changes.
	Policy        func() inherit.Policy
	PolicyChanges func() <-chan event.GenericEvent

	// clusters are the slots for requests to workload clusters, changing the slots for writes of a kind, listing the slots for first reads
	// of a kind.
	clusters          *slots[types.NamespacedName]
	changing, listing *slots[schema.GroupKind]
	pending           *pendingWrites
}

// Setup adds the loop's controllers to the manager.
func Setup(mgr ctrl.Manager, d *Dependencies) error {
	d.clusters = newSlots[types.NamespacedName](perCluster)
	if d.Workloads != nil {
		d.clusters.probed = func(cluster types.NamespacedName) time.Time {
			return d.Workloads.GetHealthCheckingState(context.Background(), cluster).LastProbeSuccessTime
		}
	}
	d.changing, d.listing = newSlots[schema.GroupKind](workers), newSlots[schema.GroupKind](workers)
	d.pending = newPendingWrites(d.Metrics)
	for name, add := range map[string]func(ctrl.Manager, *builder.Builder) error{
		"controlplane":      d.addControlPlanes,
		"machinedeployment": d.addOfTopology(owners.MachineDeployments),
		"machinepool":       d.addOfTopology(owners.MachinePools),
		"machineset":        d.addMachineSets,
		"machine":           d.addMachines,
		"workload":          d.addNodes,
	} {
		b := ctrl.NewControllerManagedBy(mgr).Named(name).WithEventFilter(changed()).WithOptions(options[ctrl.Request](workers, fastRetry))
		if err := add(mgr, b); err != nil {
			return fmt.Errorf("setting up the %s controller: %w", name, err)
		}
	}
	return nil
}

// options returns the options of a controller with this number of workers. A failed request is retried after the given time, and then
// less and less often, up to once a minute.
func options[R comparable](workers int, retry time.Duration) controller.TypedOptions[R] {
	return controller.TypedOptions[R]{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[R](retry, longestPause),
	}
}

func (d *Dependencies) addControlPlanes(mgr ctrl.Manager, b *builder.Builder) error {
	all := controlPlanes{Dependencies: d, watches: &kindWatches[ctrl.Request]{cache: mgr.GetCache()}}
	built, err := b.For(&clusterv1.Cluster{}, builder.WithPredicates(predicate.Or(declaredAnew(), resynced()))).
		Watches(&clusterv1.ClusterClass{}, enqueue(d.Chain.ClustersOf), builder.WithPredicates(classChanged())).
		WatchesRawSource(d.all(d.SchemaChanges(), &clusterv1.ClusterList{})).
		WatchesRawSource(d.all(d.PolicyChanges(), &clusterv1.ClusterList{})).
		Build(all)
	all.watches.controller = built
	return err
}

// addOfTopology returns a function that adds the controller of a kind that inherits from a topology.
func (d *Dependencies) addOfTopology(kind owners.Kind) func(ctrl.Manager, *builder.Builder) error {
	return func(_ ctrl.Manager, b *builder.Builder) error {
		list := kind.NewList()
		return b.For(kind.New()).
			Watches(&clusterv1.Cluster{}, d.members(itsOwn, list), builder.WithPredicates(declaredAnew())).
			Watches(&clusterv1.ClusterClass{}, d.members(d.Chain.ClustersOf, list), builder.WithPredicates(classChanged())).
			WatchesRawSource(d.all(d.PolicyChanges(), list)).
			Complete(children{d, kind})
	}
}

func (d *Dependencies) addMachineSets(_ ctrl.Manager, b *builder.Builder) error {
	return b.For(&clusterv1.MachineSet{}).
		Watches(&clusterv1.MachineDeployment{}, d.children(&clusterv1.MachineSetList{})).
		Watches(&clusterv1.Cluster{}, d.members(itsOwn, &clusterv1.MachineSetList{}), builder.WithPredicates(resumed())).
		Watches(&clusterv1.ClusterClass{}, d.members(d.Chain.ClustersOf, &clusterv1.MachineSetList{}), builder.WithPredicates(updates(saysElse))).
		WatchesRawSource(d.all(d.PolicyChanges(), &clusterv1.MachineSetList{})).
		Complete(children{d, owners.MachineSets})
}

func (d *Dependencies) addMachines(mgr ctrl.Manager, b *builder.Builder) error {
	all := machines{Dependencies: d, watches: &kindWatches[ctrl.Request]{cache: mgr.GetCache()}}
	built, err := b.For(&clusterv1.Machine{}).
		Watches(&clusterv1.MachineSet{}, d.children(&clusterv1.MachineList{})).
		Watches(&clusterv1.MachinePool{}, d.children(&clusterv1.MachineList{})).
		Watches(&clusterv1.Cluster{}, d.members(itsOwn, &clusterv1.MachineList{}), builder.WithPredicates(resumed())).
		Watches(&clusterv1.ClusterClass{}, d.members(d.Chain.ClustersOf, &clusterv1.MachineList{}), builder.WithPredicates(updates(saysElse))).
		WatchesRawSource(d.all(d.PolicyChanges(), &clusterv1.MachineList{})).
		Build(all)
	all.watches.controller = built
	return err
}

// addNodes adds the controller of Nodes, and the controller that makes it watch workload clusters. Changes of all owners except control
// planes enqueue the Nodes below them, so that Nodes need not wait for each level to inherit from the level above.
func (d *Dependencies) addNodes(mgr ctrl.Manager, b *builder.Builder) error {
	all := newNodes(d)
	all.facts = &kindWatches[NodeRequest]{cache: mgr.GetCache()}
	o := options[NodeRequest](remoteWorkers, fastRetry)
	o.LogConstructor = func(req *NodeRequest) logr.Logger { // with the keys of Cluster API's controllers
		logger := mgr.GetLogger().WithValues("controller", "node")
		if req != nil {
			logger = logger.WithValues("Cluster", klog.KRef(req.Cluster.Namespace, req.Cluster.Name), "Node", klog.KRef("", req.Name))
		}
		return logger
	}
	watches := builder.TypedControllerManagedBy[NodeRequest](mgr).Named("node").WithEventFilter(changed()).WithOptions(o).
		Watches(&clusterv1.Machine{}, d.nodesOf()).
		Watches(&clusterv1.MachinePool{}, d.nodesOf()).
		Watches(&clusterv1.MachineSet{}, d.nodesOf(), builder.WithPredicates(declaresElse())).
		Watches(&clusterv1.MachineDeployment{}, d.nodesOf(), builder.WithPredicates(declaresElse())).
		Watches(&clusterv1.ClusterClass{}, d.nodesIn(d.Chain.ClustersOf), builder.WithPredicates(classChanged())).
		Watches(&clusterv1.Cluster{}, d.nodesIn(itsOwn), builder.WithPredicates(predicate.Or(declaredAnew(), skippedNow()))).
		WatchesRawSource(source.TypedChannel(d.PolicyChanges(), d.nodesIn(d.every)))
	if d.ManagementCluster.Name != "" {
		watches = watches.Watches(&corev1.Node{}, itself(d.ManagementCluster))
	}
	built, err := watches.Build(all)
	all.facts.controller = built
	if err != nil || d.Workloads == nil {
		return err
	}
	clusterChanged := predicate.Or[client.Object](resynced(),
		predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.GenerationChangedPredicate{})
	return b.For(&clusterv1.Cluster{}, builder.WithPredicates(clusterChanged)).
		Watches(&clusterv1.ClusterClass{}, enqueue(d.Chain.ClustersOf), builder.WithPredicates(updates(saysElse))).
		WatchesRawSource(d.Workloads.GetClusterSource("workload", connection)).
		Watches(&clusterv1.Machine{}, d.admittedByPolicy(), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WatchesRawSource(d.all(d.Admission.Changes, &clusterv1.ClusterList{})).
		WatchesRawSource(d.all(d.PolicyChanges(), &clusterv1.ClusterList{})).
		WithOptions(options[ctrl.Request](remoteWorkers, slowRetry)).
		Complete(workloadClusters{Dependencies: d, watches: built, nodes: all, connected: newByNode[bool](nil), disconnected: newByNode[bool](nil)})
}

// connection enqueues a Cluster when its connection is made or lost.
func connection(_ context.Context, cluster client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(cluster)}}
}
