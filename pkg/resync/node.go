// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// nodes applies rules 11, 12 and 13 to the Nodes of the management cluster itself.
type nodes struct{ Dependencies }

// Reconcile implements reconcile.Reconciler.
func (r nodes) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, req.NamespacedName, node); err != nil {
		return ctrl.Result{}, gone(err, "Node")
	}
	policy := r.Policy()
	m, err := r.Chain.Inherits(ctx, node, policy)
	if err != nil || m == nil {
		return ctrl.Result{}, err
	}
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("Machine", klog.KObj(m)))
	current := inherit.OfNode(node)
	result, problems := policy.Node(m, current, inherit.Privileged)
	r.leftOut(m, problems)
	if result.Equal(current) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.patch(ctx, node, result)
}

// patch writes the Node's new state. Taints are an atomic list, so the patch holds only for the version that was read:
// a conflict is retried from a fresh one.
func (r nodes) patch(ctx context.Context, node *corev1.Node, state inherit.NodeState) error {
	changed := node.DeepCopy()
	changed.Labels, changed.Annotations, changed.Spec.Taints = state.Labels, state.Annotations, state.Taints
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}))
	r.Metrics.Write("Node", result(err))
	if err != nil {
		return fmt.Errorf("patching what the Node inherits: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("Patched what the Node inherits")
	return nil
}
