// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
	"github.com/heirloom-dev/heirloom/pkg/pace"
	"github.com/heirloom-dev/heirloom/pkg/workers"
	"github.com/heirloom-dev/heirloom/pkg/workload"
)

// Dependencies are what the controllers of all kinds need.
type Dependencies struct {
	Client client.Client
	// Live reads from the API server. It is only for objects that caches do not hold, or may hold too late.
	Live     client.Reader
	Chain    *ownerchain.Chain
	Metrics  *metrics.Metrics
	Recorder events.EventRecorder
	Schemas  Schemas
	// Providers has the kinds of providers; Client and Chain read these from it.
	Providers cache.Cache
	// NoExecuteRate is how many existing Nodes of a Cluster, or of a ClusterClass, get taints that evict Pods in a minute; 0: all.
	NoExecuteRate float64
	// Workloads reaches the workload clusters.
	Workloads clustercache.ClusterCache
	// ManagementCluster finds out which Cluster is the management cluster itself; nil if the operator has said it.
	ManagementCluster ManagementCluster
	// Namespace is the only one whose Clusters are handled; empty for all.
	Namespace string
	// Admission admits the Nodes of workload clusters.
	Admission *workload.Admission
	// ProviderGroups are the API groups of infrastructure and bootstrap providers.
	ProviderGroups []string
	// Policy returns the rules' options as they are now.
	Policy func() inherit.Policy
	// PolicyChanges returns a channel that gets an event whenever Policy answers differently from before.
	PolicyChanges func() <-chan event.GenericEvent

	// fresh is Live for decisions in which a stale cache would undo a removal. Setup makes it, patience and deferral.
	fresh    client.Reader
	patience *patience
	deferral *deferral
}

// Schemas tells which fields a Machine and a kind of control plane can inherit.
type Schemas interface {
	ownerchain.Schemas
	// Subscribe returns a channel that gets an event whenever a layout has changed.
	Subscribe() <-chan event.GenericEvent
}

const (
	// nodeWorkers and workloadWorkers are how many Nodes and workload clusters are reconciled at a time while their API
	// servers answer. API servers that do not answer make Heirloom start more workers.
	nodeWorkers, workloadWorkers = 16, 10
	// nodeShare is how many Nodes of one cluster are reconciled at a time, as in Cluster API's own Machine controller. It bounds the
	// requests in flight, so that a slow API server gets fewer of them.
	nodeShare = 10
	// freshReads is the rate and burst at which the loop reads owners from the API server before it decides: as many as the
	// webhooks read for all workload clusters together. Beyond that, the cache decides.
	freshReads = 100
)

// Setup adds the loop's controllers to the manager.
func Setup(mgr ctrl.Manager, d Dependencies) error {
	reads := rate.NewLimiter(freshReads, freshReads)
	d.fresh = ownerchain.Limited{Reader: &ownerchain.Shared{Reader: d.Live}, Allow: func(context.Context) bool { return reads.Allow() }}
	d.patience, d.deferral = newPatience(), newDeferral(time.Now)
	for name, add := range map[string]func(ctrl.Manager, *builder.Builder) error{
		"controlplane":      d.addControlPlanes,
		"machinedeployment": d.addMachineDeployments,
		"machinepool":       d.addMachinePools,
		"machineset":        d.addMachineSets,
		"machine":           d.addMachines,
		"workload":          d.addNodes,
	} {
		if err := add(mgr, ctrl.NewControllerManagedBy(mgr).Named(name).WithEventFilter(changed())); err != nil {
			return fmt.Errorf("setting up the %s controller: %w", name, err)
		}
	}
	return nil
}

func (d Dependencies) addControlPlanes(mgr ctrl.Manager, b *builder.Builder) error {
	controlPlanes := controlPlanes{Dependencies: d, tracker: d.tracker(mgr)}
	controller, err := b.For(&capi.Cluster{}, builder.WithPredicates(predicate.Or(declaredAnew(), resynced()))).
		Watches(&capi.ClusterClass{}, enqueue(d.Chain.ClustersOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(d.again(d.Schemas.Subscribe(), &capi.ClusterList{})).
		WatchesRawSource(d.policyChanges(&capi.ClusterList{})).
		Build(controlPlanes)
	controlPlanes.tracker.controller = controller
	return err
}

func (d Dependencies) addMachineDeployments(_ ctrl.Manager, b *builder.Builder) error {
	return d.topologies(b.For(&capi.MachineDeployment{}), &capi.MachineDeploymentList{}).Complete(childrenOf(d, ownerchain.MachineDeployments()))
}

func (d Dependencies) addMachinePools(_ ctrl.Manager, b *builder.Builder) error {
	return d.topologies(b.For(&capi.MachinePool{}), &capi.MachinePoolList{}).Complete(childrenOf(d, ownerchain.MachinePools()))
}

// topologies wakes the objects of the list's kind when what a topology declares for them changes.
func (d Dependencies) topologies(b *builder.Builder, list client.ObjectList) *builder.Builder {
	return b.
		Watches(&capi.Cluster{}, d.members(list), builder.WithPredicates(declaredAnew())).
		Watches(&capi.ClusterClass{}, d.membersOfClass(list), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(d.policyChanges(list))
}

func (d Dependencies) addMachineSets(_ ctrl.Manager, b *builder.Builder) error {
	return b.For(&capi.MachineSet{}).
		Watches(&capi.MachineDeployment{}, d.children(&capi.MachineSetList{})).
		Watches(&capi.Cluster{}, d.members(&capi.MachineSetList{}), builder.WithPredicates(resumed())).
		WatchesRawSource(d.policyChanges(&capi.MachineSetList{})).
		Complete(childrenOf(d, ownerchain.MachineSets()))
}

func (d Dependencies) addMachines(mgr ctrl.Manager, b *builder.Builder) error {
	around := family{Dependencies: d, controlPlanes: d.tracker(mgr), externals: d.tracker(mgr)}
	machines := childrenOf(d, ownerchain.Machines())
	machines.before, machines.also = around.watch, around.applyToExternal
	controller, err := b.For(&capi.Machine{}).
		Watches(&capi.MachineSet{}, d.children(&capi.MachineList{})).
		Watches(&capi.MachinePool{}, d.children(&capi.MachineList{})).
		Watches(&capi.Cluster{}, d.members(&capi.MachineList{}), builder.WithPredicates(resumed())).
		WatchesRawSource(d.policyChanges(&capi.MachineList{})).
		Build(machines)
	around.controlPlanes.controller, around.externals.controller = controller, controller
	return err
}

// addNodes adds the controller of Nodes, whose requests also name the cluster, and the one that makes it watch workload
// clusters. Both send requests to workload clusters, any number of which may not answer.
func (d Dependencies) addNodes(mgr ctrl.Manager, b *builder.Builder) error {
	nodes := nodeReconciler{
		Dependencies: d, pacer: pace.New[NodeRequest](d.NoExecuteRate, time.Now), memory: newNodeMemory(), courtesy: newCourtesy(time.Now),
		missing: newMissing(d.Metrics), ignored: newTrackedNodes(d.Metrics.NodesIgnored),
	}
	pool := workers.Shared("node", nodeWorkers, nodeShare, NodeRequest.cluster, logOf)
	options := pool.Options()
	options.LogConstructor = func(req *NodeRequest) logr.Logger { return logOf(mgr.GetLogger(), req) }
	watches, err := builder.TypedControllerManagedBy[NodeRequest](mgr).Named("node").WithEventFilter(changed()).
		Watches(&corev1.Node{}, itself(types.NamespacedName{})).
		Watches(&capi.Machine{}, d.nodesOf()).
		Watches(&capi.MachinePool{}, d.nodesOf()).
		Watches(&capi.MachineSet{}, d.nodesBelow(), builder.WithPredicates(declaresElse())).
		Watches(&capi.MachineDeployment{}, d.nodesBelow(), builder.WithPredicates(declaresElse())).
		Watches(&capi.ClusterClass{}, d.nodesOfClass(), builder.WithPredicates(declaresElse())).
		Watches(&capi.Cluster{}, d.nodesOfCluster(), builder.WithPredicates(predicate.Or(createdOrResumed(), declaresElse()))).
		WatchesRawSource(source.TypedChannel(d.PolicyChanges(), d.everyNode())).
		WatchesRawSource(source.TypedChannel(d.changesOfManagementCluster(), d.everyOwnNode())).
		WithOptions(options).
		Build(nodes)
	if err != nil {
		return err
	}
	if err := pool.Serve(mgr, watches); err != nil {
		return err
	}
	return d.addWorkloads(mgr, b, workloadReconciler{
		Dependencies: d, watches: watches, nodes: nodes,
		connected: newTracked[types.NamespacedName](), disconnected: newTracked[types.NamespacedName](),
		found: newTracked[types.NamespacedName](), rivals: newTracked[types.NamespacedName](),
	})
}

func (d Dependencies) addWorkloads(mgr ctrl.Manager, b *builder.Builder, w workloadReconciler) error {
	pool := workers.ForClusters("workload", workloadWorkers, 0)
	controller, err := b.For(&capi.Cluster{}, builder.WithPredicates(clusterChanged())).
		WatchesRawSource(d.Workloads.GetClusterSource("workload", d.connections)).
		Watches(&capi.Machine{}, d.admittedByPolicy(), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WatchesRawSource(d.again(d.Admission.Changes, &capi.ClusterList{})).
		WatchesRawSource(d.policyChanges(&capi.ClusterList{})).
		WatchesRawSource(d.again(d.changesOfManagementCluster(), &capi.ClusterList{})).
		WithOptions(pool.Options()).
		Build(w)
	if err != nil {
		return err
	}
	return pool.Serve(mgr, controller)
}
