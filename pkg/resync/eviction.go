// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
	"github.com/heirloom-dev/heirloom/pkg/pace"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// paced returns the taints that would evict the Node's Pods before its turn has come, and when to ask again.
func (r nodeReconciler) paced(
	ctx context.Context, chain *ownerchain.Chain, from inherit.NodeSource, node *corev1.Node, req NodeRequest,
) ([]taint.ID, time.Duration, error) {
	evicting := from.Evicting(node, nil, time.Now())
	if len(evicting) == 0 || r.NoExecuteRate <= 0 {
		r.waitsNoMore(req)
		return nil, 0, nil
	}
	declared, err := chain.Declaration(ctx, from, evicting)
	if err != nil {
		return nil, 0, fmt.Errorf("finding the Nodes that share this Node's taints: %w", err)
	}
	answer := r.pacer.Pass(req, declared.Edit.String(), declared.Limits(from.Cluster)...)
	r.Metrics.NoExecuteWaiting(r.pacer.Waiting())
	if answer.OK || answer.Waiting == 1 {
		r.report(declared, evicting, answer)
	}
	if answer.OK {
		return nil, 0, nil
	}
	ctrl.LoggerFrom(ctx).V(2).Info("A taint that evicts Pods waits for its turn", "taints", evicting, "after", answer.Again, "limitOf", answer.HeldBy)
	return evicting, answer.Again, nil
}

// forget forgets a Node that is gone or inherits nothing for now, perhaps because it is ignored.
func (r nodeReconciler) forget(req NodeRequest, ignored bool) {
	r.ignored.set(req, ignored)
	r.missing.forget(req)
	r.courtesy.forget(req)
	r.waitsNoMore(req)
}

// remembered returns the Nodes of a Cluster that miss something, wait for a taint, or are ignored.
func (r nodeReconciler) remembered(cluster types.NamespacedName) []NodeRequest {
	all := r.pacer.Known().Union(r.missing.known()).Union(r.ignored.all())
	return slices.DeleteFunc(all.UnsortedList(), func(req NodeRequest) bool { return req.Cluster != cluster })
}

// waitsNoMore no longer counts the Node as waiting.
func (r nodeReconciler) waitsNoMore(req NodeRequest) {
	r.pacer.Forget(req)
	r.Metrics.NoExecuteWaiting(r.pacer.Waiting())
}

// report records progress on the object that declares the taints, because that is the one operators edit. If that is a
// ClusterClass of a namespace in which an instance with --namespace may not record Events, the Nodes' MachineDeployment or the like
// stands for it.
func (r nodeReconciler) report(declared *ownerchain.Declaration, evicting []taint.ID, answer pace.Answer) {
	if answer.Waiting == 0 && answer.Passed <= 1 {
		return // it is one Node, and did not have to wait
	}
	reason, note := reasonNoExecuteTaintsRollingOut, fmt.Sprintf("Taints %v evict Pods: %d Nodes have them, %d wait for their turn (--no-execute-rate)",
		evicting, answer.Passed, answer.Waiting)
	if answer.HeldBy != "" {
		note += ": no more for now in " + answer.HeldBy
	}
	if answer.Waiting == 0 {
		reason, note = reasonNoExecuteTaintsRolledOut, fmt.Sprintf("Taints %v are on all %d Nodes that had to wait for them", evicting, answer.Passed)
	}
	about := declared.Edit.Object
	if r.Namespace != "" && about.GetNamespace() != r.Namespace {
		about = declared.Set.Object
	}
	r.Recorder.Eventf(about, nil, corev1.EventTypeNormal, reason, "Inherit", "%s", note)
}
