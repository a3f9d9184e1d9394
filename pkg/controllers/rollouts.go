// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/pace"
	"github.com/heirloom-dev/heirloom/pkg/pods"
)

const (
	// beginEvery is the time until a Node asks again whether its Cluster may begin.
	beginEvery = time.Minute
	// healthEvery is the time for which a look at the Pods and Nodes of a Cluster counts, fleetEvery the time for which a look at the states of
	// all Clusters counts.
	healthEvery, fleetEvery = 10 * time.Second, time.Second
	// settlesIn is the time for which a Cluster waits before it begins: a change of a ClusterClass reaches the Clusters one after the other, and
	// the order is of all of them.
	settlesIn = 10 * time.Second
	inOrder   = "the order of the Clusters"
	// begunFor is the time for which a Cluster that has begun counts as under way, until the caches have the records of its Nodes.
	begunFor = time.Minute
	// connectTime is the time after the start of the loop in which a Cluster that has not been reached yet counts as unknown.
	connectTime = 5 * time.Minute
)

// rollouts is the memory of the loop about the roll-outs of taints that evict Pods. Everything that a new leader must know is in the records
// of the Nodes.
type rollouts struct {
	metrics *metrics.Metrics
	// waiting are the Nodes that wait for such a taint, heldUp the Nodes that wait because their Pods stay, done the Nodes that have got it
	// in a roll-out that is not over. turns are the times of the turns of Nodes, and read the Nodes that the loop has read.
	waiting, heldUp, done, read *nodeSet
	turns                       *byNode[time.Time]
	started                     time.Time

	mu sync.Mutex
	of map[types.NamespacedName]*rollout
	// why has the reason for which a Cluster may not begin, as of the time at.
	why map[string]string
	at  time.Time
}

// rollout is the roll-out in a Cluster.
type rollout struct {
	begun, looked time.Time
	// waits is the time since which Nodes wait, or zero.
	waits time.Time
	// halted is the reason for which no Node has a turn, or "".
	halted string
	// surveyed says that the loop has read all Nodes once.
	surveyed bool
}

func newRollouts(m *metrics.Metrics) *rollouts {
	r := &rollouts{metrics: m, read: newByNode[bool](nil), started: time.Now(), of: map[types.NamespacedName]*rollout{}}
	count := func(state metrics.NoExecuteState) func(types.NamespacedName, map[string]bool) {
		return counted(func(cluster types.NamespacedName, nodes int) { m.NoExecuteNodes(cluster, state, nodes) })
	}
	r.waiting, r.heldUp = newByNode[bool](count(metrics.NoExecuteWaiting)), newByNode[bool](count(metrics.NoExecuteHeldUp))
	r.done, r.turns = newByNode[bool](count(metrics.NoExecuteDone)), newByNode(func(cluster types.NamespacedName, turns map[string]time.Time) {
		if len(turns) == 0 { // no roll-out, no halt
			m.NoExecuteHalted(cluster, false)
		}
	})
	return r
}

// cluster returns the roll-out in a Cluster. The caller has the lock.
func (r *rollouts) cluster(key types.NamespacedName) *rollout {
	if r.of[key] == nil {
		r.of[key] = &rollout{}
	}
	return r.of[key]
}

func (r *rollouts) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, key)
	r.metrics.NoExecuteHalted(key, false)
}

// reconnected says that the Nodes of a Cluster may have changed unnoticed.
func (r *rollouts) reconnected(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cluster(key).surveyed = false
}

// track remembers the state of a Node.
func (r *rollouts) track(req NodeRequest, waits bool, turn time.Time) {
	heldUp := waits && r.heldUp.get(req)
	r.waiting.set(req, waits && !heldUp)
	r.heldUp.set(req, heldUp)
	r.done.set(req, !waits && !turn.IsZero())
	r.turns.set(req, turn)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch of := r.of[req.Cluster]; {
	case waits && (of == nil || of.waits.IsZero()):
		r.cluster(req.Cluster).waits = time.Now()
	case of != nil && r.waits(req.Cluster) == 0:
		of.waits = time.Time{}
	}
}

// holdsUp remembers whether Pods of a waiting Node stay.
func (r *rollouts) holdsUp(req NodeRequest, stay bool) {
	r.heldUp.set(req, stay)
	r.waiting.set(req, !stay)
}

// waits returns the number of Nodes of a Cluster that wait.
func (r *rollouts) waits(cluster types.NamespacedName) int {
	waiting, _ := r.waiting.counts(cluster)
	heldUp, _ := r.heldUp.counts(cluster)
	return waiting + heldUp
}

// in returns the roll-out in a Cluster.
func (r *rollouts) in(cluster types.NamespacedName) pace.Rollout {
	return pace.Rollout{Waiting: r.waits(cluster), Turns: r.turns.values(cluster)}
}

// endHalt says that nobody looks for harm in a Cluster for now.
func (r *rollouts) endHalt(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cluster(key).halted = ""
	r.metrics.NoExecuteHalted(key, false)
}

// begin says that a Node of a Cluster has its turn.
func (r *rollouts) begin(key types.NamespacedName, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cluster(key).begun = now
}

// mayBegin returns the reason for which the Nodes of a Cluster may not have a turn now, because of the other Clusters, and the time until the
// next attempt.
func (r *nodes) mayBegin(ctx context.Context, v *visit) (why string, requeueAfter time.Duration, err error) {
	s := r.rollouts
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.now.Sub(s.at) >= fleetEvery {
		if err := r.decide(ctx, v); err != nil {
			return "", 0, err
		}
	}
	why, decided := s.why[v.Cluster.String()]
	early := s.cluster(v.Cluster).waits.Add(settlesIn).Sub(v.now)
	switch {
	case !decided:
		return inOrder, fleetEvery, nil
	case why == "" && early > 0 && r.NoExecute.Clusters != (intstr.IntOrString{}) && len(s.turns.values(v.Cluster)) == 0:
		return inOrder, early, nil
	case why != "":
		return why, beginEvery, nil
	}
	return "", 0, nil
}

// decide decides which Clusters go on or begin. The caller has the lock.
func (r *nodes) decide(ctx context.Context, v *visit) error {
	s, all := r.rollouts, &clusterv1.ClusterList{}
	if err := r.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil { // they are only read
		return fmt.Errorf("listing the Clusters: %w", err)
	}
	var states []pace.Cluster
	for i := range all.Items {
		if !v.policy.LeftToAnother(&all.Items[i]) {
			states = append(states, r.stateOf(ctx, &all.Items[i], v.now))
		}
	}
	s.why, s.at = pace.Next(states, r.NoExecute.MostClusters(len(states))), v.now
	return nil
}

// stateOf returns the state of the roll-out in a Cluster. The caller has the lock.
func (r *nodes) stateOf(ctx context.Context, cluster *clusterv1.Cluster, now time.Time) pace.Cluster {
	key := client.ObjectKeyFromObject(cluster)
	of := r.rollouts.cluster(key)
	unknown := !of.surveyed && !r.survey(ctx, cluster, of, now)
	rollout := r.rollouts.in(key)
	halted := of.halted != "" && len(rollout.Turns) > 0
	if now.Sub(of.begun) < begunFor {
		rollout.Turns = append(rollout.Turns, of.begun)
	}
	if rollout.Waiting == 0 && len(rollout.Turns) == 0 && !unknown {
		return pace.Cluster{Name: key.String()}
	}
	settings, _ := r.noExecuteOf(ctx, cluster)
	state := rollout.Cluster(key.String(), settings, halted)
	state.Unknown = unknown
	return state
}

// survey reports whether the loop knows which Nodes of the Cluster wait, or cannot know it. It takes the turns of Nodes that it has not read
// yet from their records.
func (r *nodes) survey(ctx context.Context, cluster *clusterv1.Cluster, of *rollout, now time.Time) bool {
	key := client.ObjectKeyFromObject(cluster)
	reader, err := r.nodeReader(ctx, key)
	if reader == nil || err != nil {
		provisioned := cluster.Status.Initialization
		reachable := provisioned.InfrastructureProvisioned != nil && *provisioned.InfrastructureProvisioned &&
			provisioned.ControlPlaneInitialized != nil && *provisioned.ControlPlaneInitialized
		tried := r.Workloads == nil || !r.Workloads.GetHealthCheckingState(ctx, key).LastProbeTime.IsZero()
		return tried || !reachable || now.Sub(r.rollouts.started) > connectTime
	}
	all := &corev1.NodeList{}
	if err := reader.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return false
	}
	of.surveyed = true
	for i := range all.Items {
		if req := (NodeRequest{Cluster: key, Name: all.Items[i].Name}); !r.rollouts.read.get(req) {
			r.rollouts.turns.set(req, inherit.TurnOf(&all.Items[i]))
			of.surveyed = false
		}
	}
	return of.surveyed
}

// knowsAll reports whether the loop has read all Nodes of the Cluster.
func (r *nodes) knowsAll(ctx context.Context, v *visit) bool {
	cluster, err := r.Chain.Cluster(ctx, v.Cluster.Namespace, v.Cluster.Name)
	r.rollouts.mu.Lock()
	defer r.rollouts.mu.Unlock()
	of := r.rollouts.cluster(v.Cluster)
	return of.surveyed || err == nil && cluster != nil && r.survey(ctx, cluster, of, v.now)
}

// settle reads the Cluster's settings for taints that evict Pods.
func (r *nodes) settle(ctx context.Context, v *visit) error {
	cluster, err := r.Chain.Cluster(ctx, v.Cluster.Namespace, v.Cluster.Name)
	if err != nil {
		return fmt.Errorf("reading the Cluster's settings for NoExecute taints: %w", err)
	}
	var problems []string
	if v.settings, problems = r.noExecuteOf(ctx, cluster); len(problems) > 0 && cluster != nil {
		r.leftOut(cluster, errors.New(strings.Join(problems, "; ")))
	}
	return nil
}

// noExecuteOf returns the settings of a Cluster.
func (r *nodes) noExecuteOf(ctx context.Context, cluster *clusterv1.Cluster) (of inherit.NoExecuteOf, problems []string) {
	return r.Chain.Reading(owners.FromCachePromptly).NoExecuteOf(ctx, cluster, r.NoExecute)
}

// halts returns the reason for which no Node of the Cluster may have a turn, and no Pod is evicted: its owner has paused the roll-out, or
// since the roll-out began, Pods have become unschedulable, or Nodes have stopped being ready. again is the time until the next attempt.
func (r *nodes) halts(ctx context.Context, v *visit, p owners.NodePlan) (why string, again time.Duration, err error) {
	if v.settings.Paused {
		r.rollouts.endHalt(v.Cluster)
		return "paused by " + v.settings.By, evictEvery, nil
	}
	if turns, _ := r.rollouts.turns.counts(v.Cluster); turns == 0 {
		r.rollouts.endHalt(v.Cluster)
		return "", 0, nil
	}
	r.rollouts.mu.Lock()
	of := r.rollouts.cluster(v.Cluster)
	was, looked := of.halted, of.looked
	r.rollouts.mu.Unlock()
	if v.now.Sub(looked) < healthEvery {
		return was, evictEvery, nil
	}
	since := r.rollouts.in(v.Cluster).Began()
	if since.IsZero() { // the last of these Nodes is gone
		return "", 0, nil
	}
	if why, again, err = r.harmed(ctx, v, since); err != nil || again > 0 {
		return why, again, err
	}
	r.rollouts.mu.Lock()
	of.halted, of.looked = why, v.now
	r.rollouts.mu.Unlock()
	r.Metrics.NoExecuteHalted(v.Cluster, why != "")
	switch {
	case why != "" && was == "":
		r.recordEvent(ctx, v, p, corev1.EventTypeWarning, reasonNoExecuteTaintsHalted, "Halt", "No further Node of Cluster "+v.Cluster.String()+" gets NoExecute taints for now: "+why)
	case why == "" && was != "":
		r.recordEvent(ctx, v, p, corev1.EventTypeNormal, reasonNoExecuteTaintsResumed, "Resume", "Further Nodes of Cluster "+v.Cluster.String()+" get NoExecute taints again")
	}
	return why, evictEvery, nil
}

// harmed looks at the Pods and Nodes of the Cluster, and returns the reason for a halt, or "". Without a slot for requests to the Cluster, the
// answer is not known, and is a reason until the next attempt: perhaps another Node looks at this moment, and at each later look.
func (r *nodes) harmed(ctx context.Context, v *visit, since time.Time) (why string, requeueAfter time.Duration, err error) {
	var unschedulable, notReady []string
	requeueAfter, err = r.clusters.try(v.Cluster, func() (sent bool, err error) {
		live, err := r.uncached(ctx, v.Cluster)
		if err != nil {
			return false, err
		}
		all := &corev1.NodeList{}
		if err := v.server.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("listing the Nodes: %w", err)
		}
		unschedulable, notReady, err = pods.Harmed(ctx, live, all.Items, since)
		if v.Cluster == r.ManagementCluster && apierrors.IsForbidden(err) { // with --no-execute=pace, the chart grants no right to Pods there
			err = nil
		}
		return true, err //nolint:wrapcheck // it says what failed
	})
	if err != nil || requeueAfter > 0 {
		return "its Pods cannot be read now", requeueAfter, err
	}
	return pods.Harm(unschedulable, notReady, since), 0, nil
}

// soaks returns the time until the roll-out in a Cluster is over: no Node waits, and none has had its turn for a while.
func (r *nodes) soaks(cluster types.NamespacedName, now time.Time) time.Duration {
	rollout := r.rollouts.in(cluster)
	if rollout.Waiting > 0 {
		return beginEvery
	}
	return max(0, rollout.Soaked(r.NoExecute.Soak).Sub(now))
}
