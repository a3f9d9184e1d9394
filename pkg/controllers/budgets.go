// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/pace"
	"github.com/heirloom-dev/heirloom/pkg/pods"
	"github.com/heirloom-dev/heirloom/pkg/workload"
)

const (
	// evictEvery is the time between two attempts to evict the Pods of a waiting Node, mostEvictions the maximum number of Pods each time.
	evictEvery    = 10 * time.Second
	mostEvictions = 10
)

// hadTurn reports whether the Node of a plan has had its turn, and waits only for its Pods to leave.
func (r *nodes) hadTurn(p nodePlan) bool { return r.NoExecuteBudgets && p.current.Softened() }

// noteDraining remembers the set of a Node that has had its turn, as long as the Node waits for its Pods.
func (r *nodes) noteDraining(ctx context.Context, v visit, p nodePlan) {
	set := ""
	if r.hadTurn(p) && len(p.held) > 0 {
		if set = r.draining.get(v.NodeRequest); set == "" {
			if group, _, err := r.Chain.NodeGroup(ctx, p.Source); err == nil {
				set = group.String()
			}
		}
	}
	r.draining.set(v.NodeRequest, set)
}

// waitForDraining returns the time until the next attempt, and the limit, if no more Nodes of the set may wait for their Pods now;
// otherwise 0. At most a tenth of a set waits at a time: if budgets delay the Nodes, their NoSchedule taints would otherwise leave no
// Node for Pods that must move.
func (r *nodes) waitForDraining(v visit, limits [2]pace.Limit) (time.Duration, string) {
	if !r.NoExecuteBudgets {
		return 0, ""
	}
	set, most := limits[0].Name, int(limits[0].PerMinute)
	draining := r.draining.having(v.Cluster, set)
	if draining < most {
		return 0, ""
	}
	return evictEvery, fmt.Sprintf("%s (Nodes that wait for their Pods to leave: %d)", set, draining)
}

// soften makes the plan of a Node whose turn has come wait for the Pods that the taints would evict, unless they have left. The result is
// the state of the Node, with the label of its turn if it waits.
func (r *nodes) soften(v visit, p *nodePlan, node inherit.NodeState) inherit.NodeState {
	if !r.NoExecuteBudgets || len(p.evicting) == 0 || len(p.held) > 0 {
		return node
	}
	leave := p.Source.Taints(p.evicting)
	if slices.Equal(leave, v.left) {
		return node
	}
	p.leave, p.held, p.again = leave, p.evicting, sooner(p.again, evictEvery)
	return inherit.Softening(node, v.now)
}

// drain evicts the Pods that must leave a Node before it gets its taints. It uses the Eviction API, which respects disruption budgets. If
// no Pod is left, or the deadline is over, it returns the plan with the taints.
func (r *nodes) drain(ctx context.Context, v *visit, p nodePlan) (nodePlan, error) {
	done := r.NoExecuteDeadline > 0 && v.now.Sub(p.current.SoftenedSince(v.now)) >= r.NoExecuteDeadline
	if !done {
		again, err := r.clusters.try(v.Cluster, func() (sent bool, err error) {
			done, err = r.evict(ctx, *v, p)
			return true, err
		})
		if p.again = sooner(p.again, again); err != nil || !done {
			return p, err
		}
	}
	v.left = p.leave
	return r.plan(ctx, r.Chain, *v)
}

// evict requests evictions of some Pods of the Node, and reports whether no Pod is left.
func (r *nodes) evict(ctx context.Context, v visit, p nodePlan) (none bool, err error) {
	ctx = ctrl.LoggerInto(ctx, logr.Discard()) // an API server may answer with any number of warnings
	live, err := r.uncached(ctx, v.Cluster)
	if err != nil {
		return false, err
	}
	leaving, err := pods.Leaving(ctx, live, v.Name, p.leave, v.now)
	if err != nil || len(leaving) == 0 {
		return err == nil, err
	}
	leaving = slices.DeleteFunc(leaving, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	if len(leaving) == 0 {
		return false, nil
	}
	if still, err := r.stillLeaves(ctx, live, v, p); err != nil || !still {
		return false, err
	}
	first := int(v.now.Unix()/int64(evictEvery.Seconds())) * mostEvictions % len(leaving) // Pods that stay must not block others
	var errs []error
	stays := ""
	for i := range min(mostEvictions, len(leaving)) {
		pod := &leaving[(first+i)%len(leaving)]
		err := v.server.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
		})
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, or another Pod has its name
		case !apierrors.IsTooManyRequests(err):
			errs = append(errs, fmt.Errorf("asking Pod %s/%s to leave: %w", pod.Namespace, pod.Name, err))
		case stays == "":
			stays = fmt.Sprintf("Pod %s/%s stays on Node %s for now: %s", pod.Namespace, pod.Name, v.Name, heldBy(err))
		}
	}
	if stays != "" {
		r.Recorder.Eventf(p.from.Object, nil, corev1.EventTypeNormal, reasonNoExecuteTaintsHeldUp, "Evict", "%s", stays)
	}
	return false, errors.Join(errs...)
}

// heldBy says why a Pod may not be evicted now, and names its disruption budget if the API server does.
func heldBy(err error) string {
	says := workload.Told(err).Error()
	if cause, is := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); is {
		says += " " + cause.Message
	}
	return says
}

// stillLeaves plans again from a live Node and live owners, and reports whether Pods must leave for the same taints: unlike a write, an
// eviction does not fail if an object has changed.
func (r *nodes) stillLeaves(ctx context.Context, live client.Reader, v visit, p nodePlan) (bool, error) {
	if r.clusters.read(v.Cluster, time.Now()) > 0 {
		return false, nil
	}
	found := &corev1.NodeList{} // a list of one Node needs only the rights of the cache
	if err := live.List(ctx, found, client.MatchingFields{"metadata.name": v.Name}); err != nil || len(found.Items) == 0 {
		return false, err
	}
	v.node = &found.Items[0]
	now, err := owners.DecideLive(ctx, r.Chain, func(ctx context.Context, chain *owners.Chain) (nodePlan, error) { return r.plan(ctx, chain, v) })
	return err == nil && now.Inherits() && !now.Observed && now.current.Softened() && slices.Equal(now.leave, p.leave), err
}

// tellTurn reports on the Machine or MachinePool that its Node has had its turn, and that the Node has its taints.
func (r *nodes) tellTurn(p nodePlan, node *corev1.Node) {
	if len(p.leave) > 0 && !p.current.Softened() {
		r.Recorder.Eventf(p.from.Object, nil, corev1.EventTypeNormal, reasonNoExecuteTaintsSoftened, "Inherit",
			"Node %s has its NoExecute taints with effect NoSchedule until its Pods have left", node.Name)
	} else if p.evicts() && r.hadTurn(p) {
		r.Recorder.Eventf(p.from.Object, nil, corev1.EventTypeNormal, reasonNoExecuteTaintsApplied, "Inherit",
			"Node %s has its NoExecute taints: its Pods have left, or --no-execute-deadline is over", node.Name)
	}
}
