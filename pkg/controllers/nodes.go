// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/pace"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// nodeTimeout bounds all requests about one Node. Its API server may not answer.
const nodeTimeout = 5 * time.Second

// NodeRequest names a Node and its Cluster.
type NodeRequest struct {
	Cluster types.NamespacedName
	Name    string
}

// logOf returns a logger that names the Node and its Cluster the way Cluster API's controllers do.
func logOf(logger logr.Logger, r *NodeRequest) logr.Logger {
	logger = logger.WithValues("controller", "node")
	if r == nil {
		return logger
	}
	return logger.WithValues("Cluster", klog.KRef(r.Cluster.Namespace, r.Cluster.Name), "Node", klog.KRef("", r.Name))
}

// nodes applies to the Nodes of all Clusters what they inherit.
type nodes struct {
	*Dependencies
	pacer   *pace.Pacer
	records *records
	// unprotected are Nodes without an Always taint, unlabelled new Nodes without labels that their kubelets may not set, ignored
	// those whose Machine, MachinePool or Cluster is opted out, waiting those that wait for a taint that evicts Pods.
	unprotected, unlabelled, ignored, waiting *nodeSet
}

func newNodes(d *Dependencies) *nodes {
	return &nodes{
		Dependencies: d, pacer: &pace.Pacer{}, records: newRecords(),
		unprotected: newNodeSet(d.Metrics.NodesUnprotected), unlabelled: newNodeSet(nil), ignored: newNodeSet(d.Metrics.NodesIgnored),
		waiting: newNodeSet(nil),
	}
}

// Reconcile implements reconcile.TypedReconciler.
func (r *nodes) Reconcile(ctx context.Context, req NodeRequest) (ctrl.Result, error) {
	again, err := r.clusters.try(req.Cluster, func() (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
		defer cancel()
		return r.sync(ctx, req)
	})
	return ctrl.Result{RequeueAfter: again}, err
}

// sync applies to the Node what it inherits, and returns when to look again if something has to wait.
func (r *nodes) sync(ctx context.Context, req NodeRequest) (again time.Duration, err error) {
	server, node, err := r.get(ctx, req)
	if node == nil || err != nil {
		return 0, err
	}
	now, policy := time.Now(), r.Policy()
	mayRestore := nodePlan.writes
	p, err := owners.Recheck(ctx, r.Chain.Within(req.Cluster), mayRestore, func(ctx context.Context, chain *owners.Chain) (nodePlan, error) {
		return r.plan(ctx, chain, req, node, policy, now)
	})
	if err != nil {
		return 0, err // what is known of the Node stays true until it can be looked at
	}
	if !p.Inherits() {
		ctrl.LoggerFrom(ctx).V(2).Info("The Node inherits nothing for now", "reason", p.Reason)
		r.forget(req)
		r.ignored.set(req, p.Reason.OptedOut())
		return 0, nil
	}
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues(p.from.Kind, klog.KObj(p.from.Object)))
	if p.writes() && !r.take(p, now) {
		again, _ := r.pacer.Wait(now, p.limits) // another Node was faster
		return again, nil
	}
	if p.writes() {
		if err := r.patch(ctx, server, node, p.result); err != nil {
			r.failed(p.from.Object, err)
			return 0, err
		}
		r.tell(p, node)
		p.current = p.result
	}
	r.see(ctx, req, p, policy, node, now)
	return p.again, nil
}

// get returns the Node and a client of its API server. The Node is nil if it is gone, or if its Cluster is not connected: all Nodes
// are looked at once it is.
func (r *nodes) get(ctx context.Context, req NodeRequest) (client.Client, *corev1.Node, error) {
	server := r.Client
	if req.Cluster != r.ManagementCluster {
		var err error
		server, err = r.Workloads.GetClient(ctx, req.Cluster)
		if errors.Is(err, clustercache.ErrClusterNotConnected) {
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reaching the workload cluster %s: %w", req.Cluster, err)
		}
	}
	node := &corev1.Node{}
	err := server.Get(ctx, types.NamespacedName{Name: req.Name}, node)
	if apierrors.IsNotFound(err) {
		r.forget(req)
		r.records.forget(req)
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("getting the Node: %w", err)
	}
	return server, node, nil
}

// nodePlan is what becomes of a Node.
type nodePlan struct {
	owners.NodeDecision
	// from is the source without the taints that wait.
	from            inherit.NodeSource
	current, result inherit.NodeState
	dropped         inherit.Drops
	// evicting are taints that evict the Node's Pods, and held those of them that wait. limits say for how long.
	evicting, held []taint.ID
	limits         [2]pace.Limit
	heldBy         string
	// wait is how long the write is left to Cluster API, and again when to look again.
	wait, again time.Duration
}

func (p nodePlan) writes() bool {
	return p.Inherits() && !p.result.Equal(p.current) && p.wait == 0
}

// plan decides about a Node by what the chain knows.
func (r *nodes) plan(
	ctx context.Context, chain *owners.Chain, req NodeRequest, node *corev1.Node, policy inherit.Policy, now time.Time,
) (p nodePlan, err error) {
	p.current = inherit.OfNode(node, now)
	if p.NodeDecision, err = chain.EvaluateNode(ctx, node, policy); err != nil || !p.Inherits() {
		return p, err
	}
	believed := inherit.Restored(p.current, r.records.get(req))
	if p.evicting = p.Source.Evicting(node, nil, now); len(p.evicting) > 0 && r.NoExecuteRate > 0 {
		if p.limits, err = r.limits(ctx, chain, p.Source); err != nil {
			return p, err
		}
		if p.again, p.heldBy = r.pacer.Wait(now, p.limits); p.again > 0 {
			p.held = p.evicting
		}
	}
	p.result, p.dropped = policy.NodeHolding(p.Source, p.held, believed, inherit.Privileged)
	p.from = p.Source.Holding(p.held, believed)
	if policy.LeftToClusterAPI(p.Source, node, p.result) {
		p.wait = r.leave(p.Source, node, now)
		p.again = sooner(p.again, p.wait)
	}
	return p, nil
}

// leave returns how long to leave to Cluster API's Machine controller what it writes itself: for a fixed time after the Machine has
// changed or the Node has registered.
func (r *nodes) leave(from inherit.NodeSource, node *corev1.Node, now time.Time) time.Duration {
	m, ok := from.Object.(client.Object)
	if !ok || owners.ObservedGeneration(m) == 0 {
		return 0
	}
	registered := node.CreationTimestamp.Add(graceTime).Sub(now)
	return max(0, min(registered, graceTime), grace(m, now))
}

// limits returns the limits of taints that evict the Pods of a Node.
func (r *nodes) limits(ctx context.Context, chain *owners.Chain, from inherit.NodeSource) ([2]pace.Limit, error) {
	set, nodes, err := chain.NodeGroup(ctx, from)
	if err != nil {
		return [2]pace.Limit{}, fmt.Errorf("finding the Nodes that share this Node's taints: %w", err)
	}
	return pace.Limits("Cluster "+from.Cluster.String(), r.NoExecuteRate, set.String(), nodes), nil
}

// take takes the Node's turn if the plan evicts Pods, and reports whether the plan may be carried out.
func (r *nodes) take(p nodePlan, now time.Time) bool {
	return len(p.evicting) == 0 || len(p.held) > 0 || r.NoExecuteRate <= 0 || r.pacer.Take(now, p.limits)
}

// patch writes the Node's new state. Taints are an atomic list, so the patch holds only for the version that was read:
// a conflict is retried from a fresh one.
func (r *nodes) patch(ctx context.Context, server client.Client, node *corev1.Node, state inherit.NodeState) error {
	changed := node.DeepCopy()
	changed.Labels, changed.Annotations, changed.Spec.Taints = state.Labels, state.Annotations, state.Taints
	err := server.Patch(ctx, changed, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}))
	r.Metrics.Write("Node", result(err))
	if err != nil {
		return fmt.Errorf("patching what the Node inherits: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("Patched what the Node inherits")
	return nil
}

// tell counts what a write has changed on a Node, and reports repaired drift and broken records on its Machine or MachinePool.
func (r *nodes) tell(p nodePlan, node *corev1.Node) {
	for _, key := range inherit.Brought(p.current, p.result) {
		r.Metrics.Key(metrics.ByResync, "Node", key.What, metrics.KeyInjected)
	}
	for _, key := range inherit.Removed(p.current, p.result) {
		r.Metrics.Key(metrics.ByResync, "Node", key.What, metrics.KeyRemoved)
	}
	if lost := inherit.Lost(p.current, p.result); len(lost) > 0 {
		names := make([]string, 0, len(lost))
		for _, key := range lost {
			r.Metrics.Drift(metrics.ByResync, "Node", key.What)
			names = append(names, fmt.Sprint(key))
		}
		r.Recorder.Eventf(p.from.Object, nil, corev1.EventTypeNormal, reasonDriftRepaired, "Inherit",
			"Node %s had lost what it inherits: %s put back", node.Name, strings.Join(names, ", "))
	}
	if broken := inherit.BrokenTracking(p.current); broken != nil {
		r.Recorder.Eventf(p.from.Object, nil, corev1.EventTypeWarning, reasonTrackingAnnotationBroken, "Inherit",
			"Node %s had a wrong record of which taints come from its Machine; the record is repaired, broken parts are dropped: %v", node.Name, broken)
	}
}

// see remembers what the Node misses now and what its record is, and reports what it cannot inherit and what waits.
func (r *nodes) see(ctx context.Context, req NodeRequest, p nodePlan, policy inherit.Policy, node *corev1.Node, now time.Time) {
	if problems := p.dropped.Problems(); problems != nil {
		r.leftOut(p.from.Object, r.Chain.NodeSources(ctx, p.from).Located(problems))
	}
	r.ignored.set(req, false)
	r.unprotected.set(req, len(p.from.Unprotected(p.current)) > 0)
	unlabelled := policy.Unlabelled(p.from, p.current) && (r.unlabelled.has(req) || inherit.Registering(node, now))
	if waited := r.unlabelled.set(req, unlabelled); waited && !unlabelled {
		r.Metrics.NodeLabelled(now.Sub(node.CreationTimestamp.Time))
	}
	if record := inherit.ValidRecord(p.current); record != "" {
		r.records.set(req, record)
	}
	r.seeEvicting(ctx, req, p)
}

// seeEvicting reports how far the roll-out of taints that evict Pods is, on the object that declares them, because operators edit
// that one. An instance with --namespace may not record Events in other namespaces: there the Machine stands for a ClusterClass.
func (r *nodes) seeEvicting(ctx context.Context, req NodeRequest, p nodePlan) {
	waits := len(p.held) > 0
	waited := r.waiting.set(req, waits)
	ofCluster, total := r.waiting.counts(req.Cluster)
	r.Metrics.NoExecuteWaiting(total)
	if waited == waits {
		return
	}
	reason := reasonNoExecuteTaintsRollingOut
	note := fmt.Sprintf("Taints with effect NoExecute evict Pods: %d Nodes of the Cluster wait for their turn (--no-execute-rate)", ofCluster)
	switch {
	case p.heldBy != "":
		note += ": no more for now in " + p.heldBy
	case ofCluster == 0:
		reason, note = reasonNoExecuteTaintsRolledOut, "Taints with effect NoExecute are on all Nodes of the Cluster that had to wait for them"
	}
	about := p.from.Object
	if len(p.evicting) > 0 {
		if declared := r.Chain.NodeSources(ctx, p.Source).Of(inherit.TaintEntry(p.evicting[0])).Object; declared != nil &&
			(r.Namespace == "" || declared.GetNamespace() == r.Namespace) {
			about = declared
		}
	}
	r.Recorder.Eventf(about, nil, corev1.EventTypeNormal, reason, "Inherit", "%s", note)
}

// forget forgets what a Node misses that is gone or inherits nothing for now.
func (r *nodes) forget(req NodeRequest) {
	for _, set := range []*nodeSet{r.unprotected, r.unlabelled, r.ignored, r.waiting} {
		set.set(req, false)
	}
	_, total := r.waiting.counts(req.Cluster)
	r.Metrics.NoExecuteWaiting(total)
}

// known returns the Nodes of a Cluster that miss something, wait for a taint or are ignored.
func (r *nodes) known(cluster types.NamespacedName) []NodeRequest {
	var all []NodeRequest
	for _, set := range []*nodeSet{r.unprotected, r.unlabelled, r.ignored, r.waiting} {
		all = append(all, set.in(cluster)...)
	}
	return all
}

// forgetAll forgets the Nodes of a Cluster that is gone: nothing asks about them again.
func (r *nodes) forgetAll(cluster types.NamespacedName) {
	for _, req := range r.known(cluster) {
		r.forget(req)
	}
	r.records.forgetAll(cluster)
	r.clusters.forget(cluster)
}
