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
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/pace"
	"github.com/heirloom-dev/heirloom/pkg/pods"
	"github.com/heirloom-dev/heirloom/pkg/workload"
)

const (
	// askEvery is the average time between two reconciles of the Nodes of a Cluster that wait for a taint that evicts Pods: thousands of
	// waiting Nodes must not keep the loop busy.
	askEvery = 50 * time.Millisecond
	// evictEvery is the time between two attempts to evict the Pods of a waiting Node, mostEvictions the maximum number of Pods each time.
	evictEvery    = 10 * time.Second
	mostEvictions = 10
	// evictionTimeout limits the time of one eviction, so that all of them fit into nodeTimeout. An API server may ask for a retry in ten
	// seconds, for which client-go waits inside the request.
	evictionTimeout = 300 * time.Millisecond
	// longHeldUp is the time after which a Node that waits for its Pods needs somebody's attention.
	longHeldUp = 15 * time.Minute
)

// takeTurn is the step that decides whether it is the Node's turn to get taints that evict Pods. The write takes the turn.
func (r *nodes) takeTurn(ctx context.Context, v *visit, p owners.NodePlan) (requeueAfter time.Duration, err error) {
	if len(p.Held) == 0 {
		return r.endTurn(ctx, v, p), nil
	}
	if err := r.settle(ctx, v); err != nil {
		return 0, err
	}
	if v.turn.Eviction == inherit.Waits {
		if v.limitedBy, requeueAfter, err = r.mayBegin(ctx, v); err != nil || requeueAfter > 0 {
			return r.asksAgain(v, requeueAfter), err
		}
	}
	if why, again, err := r.halts(ctx, v, p); err != nil || why != "" {
		v.halted, v.limitedBy = true, "Cluster "+v.Cluster.String()+": "+why
		return r.asksAgain(v, again), err
	}
	if v.turn.Eviction != inherit.Waits {
		return evictEvery, nil
	}
	if requeueAfter, err = r.limited(ctx, v, p); err != nil || requeueAfter > 0 {
		return r.asksAgain(v, requeueAfter), err
	}
	r.rollouts.begin(v.Cluster, v.now)
	v.allowed, v.turn.Eviction = true, inherit.EvictsNow
	if v.settings.Budgets {
		v.turn.Eviction = inherit.AsksPods
		return evictEvery, nil
	}
	return 0, nil
}

// asksAgain returns the time until a waiting Node asks again for its turn.
func (r *nodes) asksAgain(v *visit, soonest time.Duration) time.Duration {
	return max(soonest, time.Duration(r.rollouts.waits(v.Cluster))*askEvery)
}

// endTurn lets the record of a Node forget its turn when the roll-out in its Cluster is over: all Nodes have been read, none waits or has had
// its turn for a while, and there is no harm. Otherwise, it returns the time until the next look.
func (r *nodes) endTurn(ctx context.Context, v *visit, p owners.NodePlan) (requeueAfter time.Duration) {
	if v.node.Record.Evicted.IsZero() {
		return 0
	}
	if !slices.ContainsFunc(v.node.Record.Taints, evicts) { // nobody declares such a taint any more
		v.allowed, v.turn.RollOutOver = true, true
		return 0
	}
	turns, _ := r.rollouts.turns.counts(v.Cluster)
	again := max(healthEvery, time.Duration(turns)*askEvery)
	if !r.knowsAll(ctx, v) {
		return again
	}
	harm, _, err := r.halts(ctx, v, p)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to look for harm of NoExecute taints; retrying")
	}
	if err != nil || harm != "" {
		return again
	}
	if requeueAfter = r.soaks(v.Cluster, v.now); requeueAfter == 0 {
		v.allowed, v.turn.RollOutOver = true, true
		return 0
	}
	return min(requeueAfter, again)
}

func evicts(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }

// limited returns the time until the next attempt if a limit lets no Node have its turn now: in the Node's set, or in its Cluster.
func (r *nodes) limited(ctx context.Context, v *visit, p owners.NodePlan) (requeueAfter time.Duration, err error) {
	if v.settings.Rate == 0 {
		return 0, nil
	}
	name := "Cluster " + v.Cluster.String()
	if v.settings.Rate <= 1 { // no set is slower, so that its Nodes need not be counted
		if requeueAfter, v.limitedBy = r.pacer.Wait(v.now, pace.Limits(name, v.settings.Rate, "", 0)); requeueAfter > 0 {
			return requeueAfter, nil
		}
	}
	group, size, err := r.Chain.Within(v.Cluster).NodeGroup(ctx, p.Source)
	if err != nil {
		return 0, fmt.Errorf("finding the Nodes that share this Node's taints: %w", err)
	}
	limits := pace.Limits(name, v.settings.Rate, group.String(), size)
	if requeueAfter, v.limitedBy = r.pacer.Wait(v.now, limits); requeueAfter == 0 && v.settings.Budgets {
		requeueAfter, v.limitedBy, err = r.waitForOthers(ctx, v, group, limits[0])
	}
	if requeueAfter == 0 {
		v.limits = &limits
	}
	return requeueAfter, err
}

// waitForOthers returns the time until the next attempt, and the limit, if no more Nodes of the set may wait for their Pods now; otherwise
// 0. At most a tenth of a set waits at a time: if budgets delay the Nodes, their NoSchedule taints would otherwise leave no Node for Pods
// that must move. The records of the Nodes say which of them wait.
func (r *nodes) waitForOthers(ctx context.Context, v *visit, group inherit.Ref, limit pace.Limit) (time.Duration, string, error) {
	machines, err := r.Chain.MachinesBelow(ctx, group.Object)
	if err != nil {
		return 0, "", fmt.Errorf("finding the Nodes of %s: %w", group, err)
	}
	names, providerIDs := sets.New[string](), sets.New[string]()
	for i := range machines {
		names.Insert(machines[i].Status.NodeRef.Name)
	}
	if mp, ok := group.Object.(*clusterv1.MachinePool); ok {
		providerIDs.Insert(mp.Spec.ProviderIDList...)
	}
	all := &corev1.NodeList{}
	if err := v.server.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil { // they are only read
		return 0, "", fmt.Errorf("listing the Nodes of %s: %w", v.Cluster, err)
	}
	waiting := 0
	for i := range all.Items {
		node := &all.Items[i]
		if (names.Has(node.Name) || providerIDs.Has(node.Spec.ProviderID)) && inherit.WaitsForPods(node) {
			waiting++
		}
	}
	if waiting < int(limit.PerMinute) {
		return 0, "", nil
	}
	return evictEvery, fmt.Sprintf("%s (Nodes that wait for their Pods to leave: %d)", limit.Name, waiting), nil
}

// askPodsToLeave is the step that evicts the Pods that must leave a Node before it gets its taints. It uses the Eviction API, which respects
// disruption budgets. If no Pod is left, or the deadline is over, the Node may get the taints.
func (r *nodes) askPodsToLeave(ctx context.Context, v *visit, p owners.NodePlan) (requeueAfter time.Duration, err error) {
	if v.turn.Eviction != inherit.AsksPods || !p.WaitsForPods() || v.halted {
		return 0, nil
	}
	left := v.settings.Deadline > 0 && v.now.Sub(v.node.Record.Softened) >= v.settings.Deadline
	if !left && p.Changes() { // Pods are asked after the write; a kubelet that changes its Node all the time cannot delay the deadline
		return 0, nil
	}
	if !left {
		requeueAfter, err = r.clusters.try(v.Cluster, func() (sent bool, err error) {
			left, sent, err = r.evict(ctx, v, p)
			return sent, err
		})
	}
	if left {
		v.allowed, v.turn.PodsLeft = true, p.Held
	}
	return requeueAfter, err
}

// evict requests evictions of some Pods of the Node, and reports whether no Pod is left, and whether the Node's API server was asked.
func (r *nodes) evict(ctx context.Context, v *visit, p owners.NodePlan) (none, sent bool, err error) {
	ctx = ctrl.LoggerInto(ctx, logr.Discard()) // an API server may answer with any number of warnings
	live, err := r.uncached(ctx, v.Cluster)
	if err != nil {
		return false, false, err
	}
	all, err := pods.ToEvict(ctx, live, v.Name, p.Held, v.now)
	if err != nil || len(all) == 0 {
		return err == nil, true, err
	}
	all = slices.DeleteFunc(all, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	if len(all) == 0 {
		return false, true, nil
	}
	if still, err := r.stillHeld(ctx, live, v, p); err != nil || !still {
		return false, false, err // the management cluster may not have answered
	}
	first := int(v.now.Unix()/int64(evictEvery.Seconds())) * mostEvictions % len(all) // Pods that stay must not block others
	var errs []error
	stays := ""
	for i := range min(mostEvictions, len(all)) {
		pod := &all[(first+i)%len(all)]
		reason, err := evictPod(ctx, v.server, pod)
		if err != nil {
			errs = append(errs, fmt.Errorf("asking Pod %s/%s to leave: %w", pod.Namespace, pod.Name, err))
		}
		if reason != "" && stays == "" {
			stays = fmt.Sprintf("Pod %s/%s stays on Node %s for now: %s", pod.Namespace, pod.Name, v.Name, reason)
		}
	}
	r.rollouts.holdsUp(v.NodeRequest, stays != "")
	if stays != "" {
		kind := corev1.EventTypeNormal
		if v.now.Sub(v.node.Record.Softened) >= longHeldUp {
			kind = corev1.EventTypeWarning
		}
		r.recordEvent(ctx, v, p, kind, reasonNoExecuteTaintsHeldUp, "Evict", stays)
	}
	return false, true, errors.Join(errs...)
}

// evictPod requests the eviction of a Pod. If the Pod stays for now, it returns the reason, with the disruption budget if the API server
// names it.
func evictPod(ctx context.Context, server client.Client, pod *corev1.Pod) (stays string, err error) {
	ctx, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	err = server.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, or another Pod has its name
		return "", nil
	case unanswered(err): // the other Pods are asked nevertheless
		return "the API server does not answer the eviction in time, or asks for a later retry", nil
	case !apierrors.IsTooManyRequests(err):
		return "", err //nolint:wrapcheck // the caller knows the Pod
	}
	stays = workload.Told(err).Error()
	if cause, is := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); is {
		stays += " " + cause.Message
	}
	return stays, nil
}

// stillHeld plans again from a live Node and live owners, and reports whether Pods must leave for the same taints: unlike a write, an
// eviction does not fail if an object has changed.
func (r *nodes) stillHeld(ctx context.Context, live client.Reader, v *visit, p owners.NodePlan) (bool, error) {
	if r.clusters.read(v.Cluster, time.Now()) > 0 {
		return false, nil
	}
	found := &corev1.NodeList{} // a list of one Node needs only the rights of the cache
	if err := live.List(ctx, found, client.MatchingFields{"metadata.name": v.Name}); err != nil || len(found.Items) == 0 {
		return false, err
	}
	again := *v
	again.node = inherit.ReadNode(&found.Items[0], v.now)
	now, err := r.decideLive(ctx, &again)
	return err == nil && now.Inherits() && !now.Observed && now.WaitsForPods() && slices.Equal(now.Held, p.Held), err
}
