// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
	"github.com/heirloom-dev/heirloom/pkg/pace"
)

// NodeRequest names a Node.
type NodeRequest struct {
	// Cluster is empty for a Node of the management cluster's own API server.
	Cluster types.NamespacedName
	Name    string
}

// String names the Node and its cluster.
func (r NodeRequest) String() string {
	return r.Cluster.String() + "/" + r.Name
}

func (r NodeRequest) cluster() types.NamespacedName { return r.Cluster }

// logOf returns a logger that names the Node and its cluster the way Cluster API's controllers do.
func logOf(logger logr.Logger, r *NodeRequest) logr.Logger {
	logger = logger.WithValues("controller", "node")
	if r == nil {
		return logger
	}
	if r.Cluster != (types.NamespacedName{}) {
		logger = logger.WithValues("Cluster", klog.KRef(r.Cluster.Namespace, r.Cluster.Name))
	}
	return logger.WithValues("Node", klog.KRef("", r.Name))
}

// nodeReconciler applies to Nodes what they inherit, in the management cluster itself and in all workload clusters.
type nodeReconciler struct {
	Dependencies
	pacer    *pace.Pacer[NodeRequest]
	memory   nodeMemory
	courtesy *courtesy
	missing  missing
	// ignored are Nodes whose Machine, MachinePool or Cluster is opted out. Nothing else reports that their taints are given up.
	ignored *tracked[NodeRequest]
}

// Reconcile implements reconcile.TypedReconciler.
func (r nodeReconciler) Reconcile(ctx context.Context, req NodeRequest) (ctrl.Result, error) {
	nodes, chain, err := r.clusterOf(ctx, req.Cluster)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return ctrl.Result{}, nil // all its Nodes are looked at once it is connected
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	again, err := r.sync(ctx, nodes, chain, req)
	return ctrl.Result{RequeueAfter: again}, err
}

// clusterOf returns a client of the cluster that a Node is in, and the chain that knows its Machines.
func (r nodeReconciler) clusterOf(ctx context.Context, cluster types.NamespacedName) (client.Client, *ownerchain.Chain, error) {
	if cluster == (types.NamespacedName{}) {
		return r.Client, r.Chain, nil
	}
	c, err := r.Workloads.GetClient(ctx, cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("reaching the workload cluster %s: %w", cluster, err)
	}
	return c, r.Chain.Within(cluster), nil
}

// sync applies to the Node what it inherits, and returns when to look again if something has to wait.
func (r nodeReconciler) sync(ctx context.Context, nodes client.Client, chain *ownerchain.Chain, req NodeRequest) (time.Duration, error) {
	node := &corev1.Node{}
	if err := nodes.Get(ctx, types.NamespacedName{Name: req.Name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req, false)
			r.memory.written(req)
		}
		return 0, gone(err, "Node")
	}
	policy := r.Policy()
	decided, wait, err := r.evaluate(ctx, chain, node, policy, req)
	if err != nil {
		return 0, err // what is known of the Node stays true until it can be looked at
	}
	if !decided.Inherits() {
		ctrl.LoggerFrom(ctx).V(2).Info("The Node inherits nothing for now", "reason", decided.Reason)
		r.forget(req, decided.Reason.OptedOut())
		return 0, nil
	}
	r.ignored.set(req, false)
	from := decided.Source
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues(from.Kind, klog.KObj(from.Object)))
	held, again, err := r.paced(ctx, chain, from, node, req)
	if err != nil {
		return 0, err
	}
	current := inherit.OfNode(node)
	believed := r.memory.restored(req, node)
	result, problems := policy.NodeHolding(from, held, believed, inherit.Privileged)
	from = from.Holding(held, believed) // what waits is not missing
	if problems != nil {
		r.leftOut(from.Object, r.Chain.NodeSources(ctx, from).Located(problems))
	}
	r.missing.see(req, policy, from, node, current)
	if result.Equal(current) {
		r.courtesy.written(req)
		r.settled(req)
		return again, nil
	}
	if wait = max(wait, r.leaves(req, from, node, result)); wait > 0 {
		r.memory.postpone(req, node, believed, result)
		return sooner(again, wait), nil
	}
	why := metrics.Ahead
	if r.courtesy.late(req) {
		why = metrics.Late
	}
	r.courtesy.written(req)
	if err := r.patchNode(ctx, nodes, node, result, why); err != nil {
		r.failed(from.Object, err)
		return again, err
	}
	r.settled(req)
	r.missing.see(req, policy, from, node, result)
	r.changed(from.Object, node, current, result)
	return again, nil
}

// evaluate decides about the Node. A result that would restore something to it is in doubt; see nodeMemory. One that is left to Cluster API
// is not, for as long as evaluate returns: it must not be written sooner.
func (r nodeReconciler) evaluate(
	ctx context.Context, chain *ownerchain.Chain, node *corev1.Node, policy inherit.Policy, req NodeRequest,
) (decided ownerchain.NodeDecision, wait time.Duration, err error) {
	current := inherit.OfNode(node)
	bringsBack := func(decided ownerchain.NodeDecision) bool {
		if !decided.Inherits() {
			return false
		}
		result, _ := policy.Node(decided.Source, r.memory.restored(req, node), inherit.Privileged)
		if result.Equal(current) {
			inherited, _ := policy.Node(decided.Source, inherit.NodeState{}, inherit.Privileged)
			r.memory.set(req, inherited)
			return false
		}
		wait = r.leaves(req, decided.Source, node, result)
		return wait == 0 && r.memory.lost(req, current, result)
	}
	decided, err = ownerchain.Recheck(ctx, chain, r.fresh, bringsBack, func(ctx context.Context, chain *ownerchain.Chain) (ownerchain.NodeDecision, error) {
		return chain.EvaluateNode(ctx, node, policy)
	})
	return decided, wait, err
}

// leaves returns how long to leave to Cluster API what would become of the Node.
func (r nodeReconciler) leaves(req NodeRequest, from inherit.NodeSource, node *corev1.Node, result inherit.NodeState) time.Duration {
	if !r.Policy().LeftToClusterAPI(from, node, result) {
		return 0
	}
	return r.courtesy.wait(req)
}

// settled ends what was remembered while the Node was left to Cluster API.
func (r nodeReconciler) settled(req NodeRequest) {
	r.courtesy.forget(req)
	r.memory.written(req)
}

// patchNode writes the Node's new state. Taints are an atomic list, so the patch holds only for the version that was read:
// a conflict is retried from a fresh one.
func (r nodeReconciler) patchNode(
	ctx context.Context, nodes client.Client, node *corev1.Node, state inherit.NodeState, why metrics.WriteReason,
) error {
	changed := node.DeepCopy()
	changed.Labels, changed.Annotations, changed.Spec.Taints = state.Labels, state.Annotations, state.Taints
	err := nodes.Patch(ctx, changed, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}))
	r.Metrics.Write("Node", result(err), why)
	if err != nil {
		return fmt.Errorf("patching what the Node inherits: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("Patched what the Node inherits")
	return nil
}
