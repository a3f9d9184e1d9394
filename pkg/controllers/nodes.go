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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/pace"
	"github.com/heirloom-dev/heirloom/pkg/release"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/pkg/workload"
)

const (
	// nodeTimeout limits the time of all requests about a Node. Its API server may not answer.
	nodeTimeout = 5 * time.Second
	// askEvery is the average time between two reconciles of the Nodes of a Cluster that wait for a taint that evicts Pods: thousands of
	// waiting Nodes must not keep the loop busy.
	askEvery = 50 * time.Millisecond
	// afterConflict is the time until the retry of a conflicting write. It does not grow: a kubelet that writes its Node all the time must
	// not delay its inheritance.
	afterConflict = 100 * time.Millisecond
)

// NodeRequest names a Node and its Cluster.
type NodeRequest struct {
	Cluster types.NamespacedName
	Name    string
}

// nodes reconciles the Nodes of all Clusters.
type nodes struct {
	*Dependencies
	pacer *pace.Pacer
	// facts are the watches of kinds with facts about Nodes.
	facts *kindWatches[NodeRequest]
	// records are the last valid records (inherit.Record) that the loop saw on Nodes. With them, a kubelet that makes its record invalid
	// does not keep entries that its Machine loses.
	records *byNode[string]
	// unprotected are Nodes without a declared Always taint, unlabelled new Nodes without labels that their kubelets may not set, ignored
	// Nodes whose Machine, MachinePool or Cluster is opted out, waiting Nodes that wait for a taint that evicts Pods.
	unprotected, unlabelled, ignored, waiting *nodeSet
	// draining are the sets of waiting Nodes that have had their turn.
	draining *byNode[string]
}

func newNodes(d *Dependencies) *nodes {
	return &nodes{
		Dependencies: d, pacer: &pace.Pacer{}, records: newByNode[string](nil),
		unprotected: newByNode[bool](d.Metrics.NodesUnprotected), unlabelled: newByNode[bool](nil),
		ignored: newByNode[bool](d.Metrics.NodesIgnored), waiting: newByNode[bool](nil), draining: newByNode[string](nil),
	}
}

// Reconcile implements reconcile.TypedReconciler.
func (r *nodes) Reconcile(ctx context.Context, req NodeRequest) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	again, err := r.sync(ctx, req)
	return ctrl.Result{RequeueAfter: again}, err
}

// visit is the data that a reconcile reads once for all its steps.
type visit struct {
	NodeRequest
	// server is a client of the Node's API server.
	server client.Client
	node   *corev1.Node
	policy inherit.Policy
	now    time.Time
	// left are taints that evict Pods, and need not wait for them any longer.
	left []corev1.Taint
	// ready are the DaemonSets that a start-up gate waits for and that have a ready Pod on the Node.
	ready sets.Set[types.NamespacedName]
}

// sync reconciles the Node. again is the time until the next reconcile, if a step has to wait.
func (r *nodes) sync(ctx context.Context, req NodeRequest) (again time.Duration, err error) {
	v := visit{NodeRequest: req, policy: r.Policy(), now: time.Now()}
	if v.server, v.node, err = r.get(ctx, req); err != nil || v.node == nil {
		return 0, err
	}
	p, err := r.planWithGates(ctx, &v)
	if err != nil {
		return 0, err // the last findings about the Node count until it can be read
	}
	if p.Observed {
		r.forget(req, false)
		r.observeNode(v.node, p)
		return p.again, nil
	}
	r.note(ctx, v, p)
	if p.Reason.Released() {
		return r.release(ctx, v)
	}
	if len(p.leave) > 0 && !p.writes() {
		if p, err = r.drain(ctx, &v, p); err != nil {
			r.report(ctx, v, p)
			return 0, err
		}
	}
	if p.writes() {
		again, err = r.write(ctx, v, &p)
		if apierrors.IsConflict(err) {
			return afterConflict, nil
		}
		if err != nil || again > 0 {
			return again, err
		}
		r.note(ctx, v, p)
	}
	r.report(ctx, v, p)
	return p.again, nil
}

// get returns the Node and a client of its API server. The Node is nil if it is gone, or if its Cluster is not connected: when it
// connects, all its Nodes are reconciled.
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
		r.forget(req, false)
		r.records.set(req, "")
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("getting the Node: %w", err)
	}
	return server, node, nil
}

// nodePlan is the decision about a Node and the write that carries it out.
type nodePlan struct {
	owners.NodeDecision
	// from is the source without the waiting taints.
	from            inherit.NodeSource
	current, result inherit.NodeState
	dropped         inherit.Drops
	// evicting are the taints that evict the Node's Pods, held the evicting taints that wait. limits are the Node's rate limits, heldBy is
	// the limit that makes it wait.
	evicting, held []taint.ID
	limits         [2]pace.Limit
	heldBy         string
	// leave are the evicting taints for which Pods leave first.
	leave []corev1.Taint
	// awaited are the DaemonSets that closed start-up gates wait for.
	awaited []types.NamespacedName
	// wait is the time for which the write is left to Cluster API, again the time until the next reconcile.
	wait, again time.Duration
}

// due reports whether a write is needed now and is not left to Cluster API.
func (p nodePlan) due() bool { return p.Inherits() && !p.result.Equal(p.current) && p.wait == 0 }

func (p nodePlan) writes() bool { return p.due() && !p.Observed }

// evicts reports whether the write evicts Pods from the Node.
func (p nodePlan) evicts() bool {
	return len(p.evicting) > len(p.held)
}

// plan evaluates the Node with the data of the chain.
func (r *nodes) plan(ctx context.Context, chain *owners.Chain, v visit) (p nodePlan, err error) {
	chain, p.current = chain.Within(v.Cluster), inherit.OfNode(v.node, v.now)
	if p.NodeDecision, err = chain.EvaluateNode(ctx, v.node, v.policy); err != nil || !p.Inherits() {
		return p, err
	}
	believed := inherit.Restored(p.current, r.records.get(v.NodeRequest))
	if p.evicting = p.Source.Evicting(v.node, nil, v.now); len(p.evicting) > 0 && r.NoExecuteRate > 0 && !r.hadTurn(p) {
		if err = r.hold(ctx, chain, v, &p); err != nil {
			return p, err
		}
	}
	believed = r.soften(v, &p, believed)
	p.result, p.dropped = v.policy.NodeHolding(p.Source, p.held, believed, inherit.Privileged)
	p.openGates(v)
	if !p.result.Fits() { // the kubelet has used up the size of annotations, so the record cannot be restored
		p.result.Annotations = p.current.Annotations
	}
	p.from = p.Source.Holding(p.held, believed)
	p.again = sooner(p.again, r.watchFacts(ctx, v, p.Source))
	if v.policy.LeftToClusterAPI(p.Source, v.node, p.result) {
		p.wait = leave(p.Source, v.node, v.now)
		p.again = sooner(p.again, p.wait)
	}
	return p, nil
}

// watchFacts watches the objects with facts about the Node, so that their changes enqueue it. If a kind cannot be watched yet, again is
// the time until the next reconcile.
func (r *nodes) watchFacts(ctx context.Context, v visit, from inherit.NodeSource) (again time.Duration) {
	m, ok := from.Object.(*clusterv1.Machine)
	if !ok {
		return 0
	}
	for _, ref := range owners.ExternalRefs(m) {
		if len(v.policy.FactsOf(ref.GroupKind())) == 0 {
			continue
		}
		later, err := r.facts.watch(r.Chain, ref.GroupKind(), &unstructured.Unstructured{}, r.nodesOfExternal())
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to watch a kind with facts about Nodes; retrying", "kind", ref.GroupKind())
			later = unserved
		}
		again = sooner(again, later)
	}
	return again
}

// hold makes the plan wait with taints that evict Pods until the Node's turn.
func (r *nodes) hold(ctx context.Context, chain *owners.Chain, v visit, p *nodePlan) error {
	set, nodes, err := chain.NodeGroup(ctx, p.Source)
	if err != nil {
		return fmt.Errorf("finding the Nodes that share this Node's taints: %w", err)
	}
	p.limits = pace.Limits("Cluster "+v.Cluster.String(), r.NoExecuteRate, set.String(), nodes)
	wait, heldBy := r.pacer.Wait(v.now, p.limits)
	if wait == 0 {
		wait, heldBy = r.waitForDraining(v, p.limits)
	}
	if wait > 0 {
		waiting, _ := r.waiting.counts(v.Cluster)
		p.held, p.heldBy, p.again = p.evicting, heldBy, max(wait, time.Duration(waiting)*askEvery)
	}
	return nil
}

// leave returns the time for which writes are left to Cluster API's Machine controller: until graceTime after the last change of the
// Machine and after the registration of the Node.
func leave(from inherit.NodeSource, node *corev1.Node, now time.Time) time.Duration {
	m, ok := from.Object.(client.Object)
	if !ok || owners.ObservedGeneration(m) == 0 {
		return 0
	}
	registered := node.CreationTimestamp.Add(graceTime).Sub(now)
	return max(0, min(registered, graceTime), grace(m, now))
}

// write plans again from live owners, because the cache may be stale and the write may restore or remove entries, and carries out the
// plan. Without a slot or beyond the limit of live reads, or if another Node has taken the turn meanwhile, again is the time until the
// next attempt.
func (r *nodes) write(ctx context.Context, v visit, p *nodePlan) (again time.Duration, err error) {
	var taken time.Duration
	again, err = r.clusters.try(v.Cluster, func() (sent bool, err error) {
		if taken = r.clusters.read(v.Cluster, time.Now()); taken > 0 {
			return false, nil
		}
		*p, err = owners.DecideLive(ctx, r.Chain, func(ctx context.Context, chain *owners.Chain) (nodePlan, error) { return r.plan(ctx, chain, v) })
		if err != nil || !p.writes() {
			return false, err
		}
		paced := (p.evicts() || len(p.leave) > 0) && r.NoExecuteRate > 0 && !r.hadTurn(*p)
		if paced {
			if wait, _ := r.pacer.Take(v.now, p.limits); wait > 0 {
				taken = turn
				return false, nil
			}
		}
		if err = r.patch(ctx, v, p.result); err != nil {
			if paced && refused(err) {
				r.pacer.Return(p.limits) // the Node was not tainted
			}
			r.failed(p.from.Object, workload.Told(err))
			return true, err
		}
		r.tell(*p, v.node)
		r.tellTurn(*p, v.node)
		p.current = p.result
		return true, nil
	})
	return max(again, taken), err
}

// patch writes the Node's new state. Taints are an atomic list, so the patch is valid only for the version that was read. After a
// conflict, the loop reads the Node again.
func (r *nodes) patch(ctx context.Context, v visit, state inherit.NodeState) error {
	changed := v.node.DeepCopy()
	changed.Labels, changed.Annotations, changed.Spec.Taints = state.Labels, state.Annotations, state.Taints
	patch := client.MergeFromWithOptions(v.node, client.MergeFromWithOptimisticLock{})
	// Without a logger: an API server may answer with any number of warnings.
	err := v.server.Patch(ctrl.LoggerInto(ctx, logr.Discard()), changed, patch)
	r.Metrics.Write("Node", result(err))
	if err != nil {
		return fmt.Errorf("patching inherited entries of the Node: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("Patched inherited entries of Node")
	return nil
}

// tell counts the changes of a write to a Node, and reports repaired drift, opened start-up gates and broken records on its Machine or
// MachinePool.
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
			"Restored inherited entries of Node %s: %s", node.Name, strings.Join(names, ", "))
	}
	r.tellOpened(p, node)
	if broken := inherit.BrokenTracking(p.current); broken != nil {
		r.Recorder.Eventf(p.from.Object, nil, corev1.EventTypeWarning, reasonTrackingAnnotationBroken, "Inherit",
			"Repaired the record of taints from the Machine on Node %s, without its broken parts: %v", node.Name, broken)
	}
}

// note remembers the Node's record, and whether the Node lacks a taint or a label, waits for its Pods or is ignored.
func (r *nodes) note(ctx context.Context, v visit, p nodePlan) {
	if !p.Inherits() {
		r.forget(v.NodeRequest, p.Reason.OptedOut())
		return
	}
	if record := inherit.ValidRecord(p.current); record != "" {
		r.records.set(v.NodeRequest, record)
	}
	r.ignored.set(v.NodeRequest, false)
	r.noteDraining(ctx, v, p)
	r.unprotected.set(v.NodeRequest, len(p.from.Unprotected(p.current)) > 0)
	unlabelled := v.policy.Unlabelled(p.from, p.current) && (r.unlabelled.get(v.NodeRequest) || inherit.Registering(v.node, v.now))
	if was := r.unlabelled.set(v.NodeRequest, unlabelled); was && !unlabelled {
		r.Metrics.NodeLabelled(v.now.Sub(v.node.CreationTimestamp.Time))
	}
}

// report reports the entries that the Node cannot inherit, and the taints that wait.
func (r *nodes) report(ctx context.Context, v visit, p nodePlan) {
	if !p.Inherits() {
		ctrl.LoggerFrom(ctx).V(2).Info("Node inherits nothing for now", "reason", p.Reason)
		return
	}
	if problems := p.dropped.Problems(); problems != nil {
		r.leftOut(p.from.Object, r.Chain.NodeSources(ctx, p.from).Located(problems))
	}
	r.reportEvicting(ctx, v, p)
}

// reportEvicting reports the progress of a roll-out of taints that evict Pods. The Event is on the object that declares the taints,
// because operators edit it. An instance with --namespace may not record Events in other namespaces, so for a ClusterClass there, the
// Event is on the Machine.
func (r *nodes) reportEvicting(ctx context.Context, v visit, p nodePlan) {
	waits := len(p.held) > 0
	waited := r.waiting.set(v.NodeRequest, waits)
	left, total := r.waiting.counts(v.Cluster)
	r.Metrics.NoExecuteWaiting(total)
	var reason, note string
	switch {
	case waits && !waited && p.heldBy != "":
		reason, note = reasonNoExecuteTaintsRollingOut, "NoExecute taints evict Pods, so Nodes wait for their turn "+
			"(--no-execute-rate); limit reached in "+p.heldBy
	case waited && p.evicts() && left == 0:
		reason, note = reasonNoExecuteTaintsRolledOut, "All Nodes of the Cluster that waited for NoExecute taints have them"
	default:
		return
	}
	about := p.from.Object
	declared := r.Chain.NodeSources(ctx, p.Source).Of(inherit.TaintEntry(p.evicting[0])).Object
	if declared != nil && (r.Namespace == "" || declared.GetNamespace() == r.Namespace) {
		about = declared
	}
	r.Recorder.Eventf(about, nil, corev1.EventTypeNormal, reason, "Inherit", "%s", note)
}

// release releases a Node whose Machine, MachinePool or Cluster is opted out for good.
func (r *nodes) release(ctx context.Context, v visit) (again time.Duration, err error) {
	if state := inherit.OfNode(v.node, v.now); inherit.Release(state, true).Equal(state) {
		return 0, nil
	}
	return r.clusters.try(v.Cluster, func() (sent bool, err error) {
		live, err := r.uncached(ctx, v.Cluster)
		if err != nil {
			return false, err
		}
		changed, removed, err := release.Node(ctx, v.server, live, v.Name, release.Mode{})
		if err != nil {
			return true, fmt.Errorf("releasing the Node: %w", err)
		}
		if changed {
			r.records.set(v.NodeRequest, "")
			r.Metrics.Write("Node", result(nil))
			ctrl.LoggerFrom(ctx).Info("Released Node", "removed", removed)
		}
		return true, nil
	})
}

// forget drops the findings about a Node that is gone or inherits nothing for now, but not its record; ignored says that the Node is
// opted out.
func (r *nodes) forget(req NodeRequest, ignored bool) {
	for _, set := range []*nodeSet{r.unprotected, r.unlabelled, r.waiting} {
		set.set(req, false)
	}
	r.ignored.set(req, ignored)
	r.draining.set(req, "")
	_, total := r.waiting.counts(req.Cluster)
	r.Metrics.NoExecuteWaiting(total)
}

// known returns the Nodes of a Cluster about which the loop remembers anything.
func (r *nodes) known(cluster types.NamespacedName) []NodeRequest {
	all := r.records.in(cluster)
	for _, set := range []*nodeSet{r.unprotected, r.unlabelled, r.ignored, r.waiting} {
		all = append(all, set.in(cluster)...)
	}
	return all
}

// forgetAll drops the findings about all Nodes of a Cluster that is gone, because no later reconcile does.
func (r *nodes) forgetAll(cluster types.NamespacedName) {
	for _, req := range r.known(cluster) {
		r.forget(req, false)
		r.records.set(req, "")
	}
	r.clusters.forget(cluster)
}
