// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/cleanup"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/pace"
	"github.com/heirloom-dev/heirloom/pkg/workload"
)

const (
	// nodeTimeout limits the time of all requests about a Node. Its API server may not answer.
	nodeTimeout = 5 * time.Second
	// afterConflict is the time until the retry of a conflicting write. It does not grow: a kubelet that writes its Node all the time must
	// not delay its inheritance.
	afterConflict = 100 * time.Millisecond
	// liveDecisions is the number of live decisions at a time. More would wait for each other's reads until their time is over, in vain.
	liveDecisions = 64
)

// NodeRequest names a Node and its Cluster.
type NodeRequest struct {
	Cluster types.NamespacedName
	Name    string
}

// nodes reconciles the Nodes of all Clusters.
type nodes struct {
	*Dependencies
	findings

	pacer    *pace.Pacer
	deciding *semaphore.Weighted
	// facts are the watches of kinds with facts about Nodes.
	facts *kindWatches[NodeRequest]
}

func newNodes(d *Dependencies) *nodes {
	return &nodes{Dependencies: d, findings: newFindings(d.Metrics), pacer: &pace.Pacer{}, deciding: semaphore.NewWeighted(liveDecisions)}
}

// Reconcile implements reconcile.TypedReconciler.
func (r *nodes) Reconcile(ctx context.Context, req NodeRequest) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	requeueAfter, err := r.sync(ctx, req)
	if errors.Is(err, errGone) {
		r.drop(req)
		return ctrl.Result{}, nil
	}
	r.rollouts.read.set(req, true) // also if it cannot be read: it must not hold up other Clusters
	// If the Cluster went meanwhile, or went to another instance, this may have been handled before the last findings.
	cluster, clusterErr := r.Chain.Cluster(ctx, req.Cluster.Namespace, req.Cluster.Name)
	if clusterErr == nil && (cluster == nil || r.Policy().LeftToAnother(cluster)) {
		r.forgetAll(req.Cluster)
	}
	return ctrl.Result{RequeueAfter: requeueAfter}, err
}

// visit is a Node during a reconcile.
type visit struct {
	NodeRequest
	// server is a client of the Node's API server.
	server client.Client
	node   inherit.Node
	policy inherit.Policy
	now    time.Time
	// turn limits the write. Steps after the first plan may allow more; then the Node is planned again.
	turn    inherit.Turn
	allowed bool
	// settings are the Cluster's for taints that evict Pods. waited says that the Node waited for one before, halted that it may not have one
	// now. limits are the limits in which the Node takes a turn with the write, limitedBy is the limit that makes it wait.
	settings       inherit.NoExecuteOf
	waited, halted bool
	limits         *[2]pace.Limit
	limitedBy      string
}

// plan plans for the Node with the data of the chain.
func (v *visit) plan(ctx context.Context, chain *owners.Chain) (owners.NodePlan, error) {
	return chain.Within(v.Cluster).PlanNode(ctx, v.node, v.policy, v.turn)
}

// step is a step after the first plan. It may allow more for the turn; requeueAfter is the time until the next reconcile, or 0.
type step func(ctx context.Context, v *visit, p owners.NodePlan) (requeueAfter time.Duration, err error)

// sync reads the Node, plans, and carries the plan out.
func (r *nodes) sync(ctx context.Context, req NodeRequest) (requeueAfter time.Duration, err error) {
	v, err := r.read(ctx, req)
	if err != nil || v == nil {
		return 0, err
	}
	p, err := v.plan(ctx, r.Chain)
	if err != nil {
		return 0, err // the last findings about the Node count until it can be read
	}
	if p.Observed {
		r.forget(req, false)
	} else {
		r.track(v, p)
	}
	if !p.Observed || !p.Inherits() {
		r.pendingNodes.set(req, false)
	}
	switch {
	case p.Inherits() && p.Observed:
		r.observeNode(v, p)
		return r.watchFacts(ctx, v, p)
	case p.Inherits():
		return r.carryOut(ctx, v, p)
	case p.Reason.CleansUp() && !p.Observed:
		return r.cleanUp(ctx, v)
	}
	ctrl.LoggerFrom(ctx).V(2).Info("Node inherits nothing for now", "reason", p.Reason)
	return 0, nil
}

// carryOut takes the steps after the first plan, and writes the result of a second plan from live owners.
func (r *nodes) carryOut(ctx context.Context, v *visit, p owners.NodePlan) (requeueAfter time.Duration, err error) {
	for _, take := range []step{r.watchFacts, r.takeTurn, r.askPodsToLeave, r.checkGates} {
		later, err := take(ctx, v, p)
		if err != nil {
			r.report(ctx, v, p)
			return 0, err
		}
		requeueAfter = sooner(requeueAfter, later)
	}
	if p.Changes() || v.allowed {
		later, err := r.write(ctx, v, &p)
		if err != nil {
			return 0, err
		}
		if later > 0 || len(p.Held)+len(p.Gates) == 0 { // otherwise the steps say when to look again
			requeueAfter = later
		}
	}
	r.report(ctx, v, p)
	return requeueAfter, nil
}

var errGone = errors.New("the Node does not exist")

// read reads the Node, and decides the turn that it has in any case. The error is errGone if there is no such Node. The result is nil if its
// Cluster is not connected: when it connects, all its Nodes are reconciled.
func (r *nodes) read(ctx context.Context, req NodeRequest) (*visit, error) {
	v := &visit{NodeRequest: req, server: r.Client, policy: r.Policy(), now: time.Now(), turn: inherit.Turn{OpensGates: true}}
	if req.Cluster != r.ManagementCluster {
		var err error
		v.server, err = r.Workloads.GetClient(ctx, req.Cluster)
		if errors.Is(err, clustercache.ErrClusterNotConnected) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reaching the workload cluster %s: %w", req.Cluster, err)
		}
	}
	node := &corev1.Node{}
	err := v.server.Get(ctx, types.NamespacedName{Name: req.Name}, node)
	if apierrors.IsNotFound(err) {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("getting the Node: %w", err)
	}
	v.node = inherit.ReadNode(node, v.now).Restored(r.records.get(req))
	v.waited = r.rollouts.waiting.get(req) || r.rollouts.heldUp.get(req)
	if v.turn.Recorded = r.NoExecute.Limits(); v.turn.Recorded {
		v.turn.Eviction = inherit.Waits
	}
	if !v.node.Record.Softened.IsZero() {
		if err := r.settle(ctx, v); err != nil {
			return nil, err
		}
		if v.settings.Budgets {
			v.turn.Eviction = inherit.AsksPods
		}
	}
	return v, nil
}

// watchFacts is the step that watches the objects with facts about the Node, so that their changes enqueue it.
func (r *nodes) watchFacts(ctx context.Context, v *visit, p owners.NodePlan) (requeueAfter time.Duration, err error) {
	m, ok := p.Source.Object.(*clusterv1.Machine)
	if !ok {
		return 0, nil
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
		requeueAfter = sooner(requeueAfter, later)
	}
	return requeueAfter, nil
}

// write plans again from live owners, because the cache may be stale and the write may restore or remove entries, and carries out this
// plan. Without a slot, beyond the limit of live decisions, or if another Node has taken the turn meanwhile, requeueAfter is the time until
// the next attempt.
func (r *nodes) write(ctx context.Context, v *visit, p *owners.NodePlan) (requeueAfter time.Duration, err error) {
	nothing := func() (sent bool, err error) { return false, nil }
	if requeueAfter, err = r.clusters.try(v.Cluster, nothing); requeueAfter > 0 { // live reads would be in vain
		return requeueAfter, err
	}
	requeueAfter, err = r.writeLive(ctx, v, p)
	if apierrors.IsConflict(err) && r.reread(ctx, v) {
		requeueAfter, err = r.writeLive(ctx, v, p)
	}
	if apierrors.IsConflict(err) {
		return afterConflict, nil
	}
	return requeueAfter, err
}

// writeLive is one attempt of write.
func (r *nodes) writeLive(ctx context.Context, v *visit, p *owners.NodePlan) (requeueAfter time.Duration, err error) {
	if requeueAfter = r.clusters.read(v.Cluster, time.Now()); requeueAfter > 0 {
		return requeueAfter, nil
	}
	live, err := r.decideLive(ctx, v)
	if err != nil {
		return 0, err
	}
	if *p = live; !live.Changes() || live.Observed {
		return 0, nil
	}
	var turn pace.Reservation
	if v.limits != nil && len(live.Evicting) > 0 {
		if turn, requeueAfter = r.pacer.Take(v.now, *v.limits); requeueAfter > 0 {
			return retrySpacing, nil
		}
	}
	requeueAfter, err = r.clusters.try(v.Cluster, func() (sent bool, err error) { return true, r.patch(ctx, v, live.Result) })
	if requeueAfter > 0 || refused(err) {
		turn.Cancel() // the Node was not tainted
	}
	if err != nil {
		r.failed(live.Source.Object, workload.Told(err))
	}
	if err == nil && requeueAfter == 0 {
		r.recordWrite(ctx, v, live)
	}
	return requeueAfter, err
}

// decideLive plans from live owners. Its time begins when few others do so.
func (r *nodes) decideLive(ctx context.Context, v *visit) (owners.NodePlan, error) {
	if err := r.deciding.Acquire(ctx, 1); err != nil {
		return owners.NodePlan{}, fmt.Errorf("waiting for other live decisions: %w", err)
	}
	defer r.deciding.Release(1)
	return owners.DecideLive(ctx, r.Chain, v.plan)
}

// reread replaces the cached Node, and reports whether it could: a conflict says that the cache is behind, perhaps for long, because its
// watch has stalled.
func (r *nodes) reread(ctx context.Context, v *visit) bool {
	live, err := r.uncached(ctx, v.Cluster)
	if err != nil {
		return false
	}
	node := &corev1.Node{}
	later, err := r.clusters.try(v.Cluster, func() (sent bool, err error) {
		return true, live.Get(ctx, types.NamespacedName{Name: v.Name}, node) //nolint:wrapcheck // nobody sees it
	})
	if err != nil || later > 0 {
		return false
	}
	v.node = inherit.ReadNode(node, v.now).Restored(r.records.get(v.NodeRequest))
	return true
}

// patch writes the Node's new state. Taints are an atomic list, so the patch is valid only for the version that was read. After a
// conflict, the loop reads the Node again.
func (r *nodes) patch(ctx context.Context, v *visit, state inherit.NodeState) error {
	stored := v.node.Object
	changed := stored.DeepCopy()
	changed.Labels, changed.Annotations, changed.Spec.Taints = state.Labels, state.Annotations, state.Taints
	patch := client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})
	// Without a logger: an API server may answer with any number of warnings.
	err := v.server.Patch(ctrl.LoggerInto(ctx, logr.Discard()), changed, patch)
	r.Metrics.Write("Node", result(err))
	if err != nil {
		return fmt.Errorf("patching inherited entries of the Node: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("Patched inherited entries of Node")
	return nil
}

// cleanUp cleans up a Node whose Machine, MachinePool or Cluster asks for it.
func (r *nodes) cleanUp(ctx context.Context, v *visit) (requeueAfter time.Duration, err error) {
	if state := v.node.NodeState; inherit.CleanUp(state, true).Equal(state) {
		return 0, nil
	}
	return r.clusters.try(v.Cluster, func() (sent bool, err error) {
		live, err := r.uncached(ctx, v.Cluster)
		if err != nil {
			return false, err
		}
		changed, removed, err := cleanup.Node(ctx, v.server, live, v.Name, cleanup.Mode{})
		if err != nil {
			return true, fmt.Errorf("cleaning up the Node: %w", err)
		}
		if changed {
			r.records.set(v.NodeRequest, "")
			r.Metrics.Write("Node", result(nil))
			ctrl.LoggerFrom(ctx).Info("Cleaned up Node", "removed", removed)
		}
		return true, nil
	})
}

// uncached returns a reader of the Node's API server that does not use the cache.
func (r *nodes) uncached(ctx context.Context, cluster types.NamespacedName) (client.Reader, error) {
	if cluster == r.ManagementCluster {
		return r.Live, nil
	}
	live, err := r.Workloads.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("reaching the workload cluster %s: %w", cluster, err)
	}
	return live, nil
}
