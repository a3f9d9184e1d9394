// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// gateEvery is the time until the next look for other objects that meet requirements of start-up gates: neither Pods nor CSINodes are
// watched.
const gateEvery = 10 * time.Second

// checkGates is the step that looks for ready Pods of DaemonSets and for CSI drivers for which closed gates of the Node wait: these gates
// may open. If another change is to be written, the look has time until then. After an error, the gates stay closed, and the Node inherits
// everything else.
func (r *nodes) checkGates(ctx context.Context, v *visit, p owners.NodePlan) (requeueAfter time.Duration, err error) {
	var awaited []taint.Requirement
	for _, gate := range p.Gates {
		requeueAfter = sooner(requeueAfter, max(0, v.lateAt(gate).Sub(v.now)))
		for _, wanted := range v.awaits(gate) {
			if !wanted.OnNode() && !slices.Contains(awaited, wanted) { // a change of the Node enqueues it
				awaited = append(awaited, wanted)
			}
		}
	}
	switch {
	case len(awaited) == 0:
		return requeueAfter, nil
	case p.Changes():
		return sooner(requeueAfter, gateEvery), nil
	}
	met := sets.New[taint.Requirement]()
	later, err := r.clusters.try(v.Cluster, func() (sent bool, err error) {
		live, err := r.uncached(ctx, v.Cluster)
		if err != nil {
			return false, err
		}
		for _, wanted := range awaited {
			is, wrong := isMet(ctx, live, v.Name, wanted)
			if is {
				met.Insert(wanted)
			}
			err = errors.Join(err, wrong)
		}
		return true, err
	})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to check start-up gates; retrying")
		r.Recorder.Eventf(p.Source.Object, nil, corev1.EventTypeWarning, reasonInheritanceFailed, "Open",
			"Failed to check the start-up gates of Node %s: %v", v.Name, workload.Told(err))
	}
	v.turn.Met, v.allowed = met, v.allowed || len(met) > 0
	if len(met) < len(awaited) { // without a free slot, the next look comes sooner
		later = sooner(later, gateEvery)
	}
	return sooner(requeueAfter, later), nil
}

// isMet reports whether a Pod or the CSINode of a Node meets a requirement.
func isMet(ctx context.Context, live client.Reader, node string, wanted taint.Requirement) (bool, error) {
	if wanted.Kind == taint.CSINode {
		csi := &storagev1.CSINode{}
		switch err := live.Get(ctx, types.NamespacedName{Name: node}, csi); {
		case meta.IsNoMatchError(err):
			return false, webhook.OwnError{Err: fmt.Errorf("looking for %s: the API server serves no CSINodes", wanted)}
		case client.IgnoreNotFound(err) != nil: // the kubelet makes it for the first driver
			return false, fmt.Errorf("looking for %s: %w", wanted, err)
		}
		return slices.ContainsFunc(csi.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == wanted.Name }), nil
	}
	namespace, name, _ := strings.Cut(wanted.Name, "/")
	pods := &corev1.PodList{}
	if err := live.List(ctx, pods, client.InNamespace(namespace), client.MatchingFields{"spec.nodeName": node}); err != nil {
		return false, fmt.Errorf("looking for a ready Pod of %s: %w", wanted, err)
	}
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return opens(&pod, name) }), nil
}

// opens reports whether a Pod is a ready Pod of a DaemonSet of its namespace.
func opens(pod *corev1.Pod, daemonSet string) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.Name == daemonSet && pod.DeletionTimestamp == nil &&
		slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// awaits returns the requirements for which a closed gate waits now. Other objects are looked at once the Node itself meets its part.
func (v *visit) awaits(gate taint.Gate) []taint.Requirement {
	lacks := v.node.Lacks(gate, v.turn.Met)
	if slices.ContainsFunc(lacks, taint.Requirement.OnNode) {
		return slices.DeleteFunc(lacks, func(r taint.Requirement) bool { return !r.OnNode() })
	}
	return lacks
}

// lateAt returns the time at which a closed gate of the Node is late. It is zero for a gate that is never late.
func (v *visit) lateAt(gate taint.Gate) (at time.Time) {
	if gate.Within > 0 {
		at = v.node.Object.CreationTimestamp.Add(gate.Within)
	}
	return at
}

// closedGates are the closed start-up gates of a Node: how many, since when, in seconds since 1970, and the late gates, as
// "<key>:<effect>", separated by commas.
type closedGates struct {
	closed int
	since  int64
	late   string
}

// countGates reports the closed start-up gates of the Nodes of a Cluster.
func countGates(m *metrics.Metrics) func(cluster types.NamespacedName, nodes map[string]closedGates) {
	return func(cluster types.NamespacedName, nodes map[string]closedGates) {
		closed, late, since := 0, 0, int64(math.MaxInt64)
		for _, n := range nodes {
			closed, late, since = closed+n.closed, late+len(taint.Split(n.late)), min(since, n.since)
		}
		m.StartupGates(cluster, closed, late, since)
	}
}

// reportGates counts the closed gates of the Node, and reports each late gate once.
func (r *nodes) reportGates(ctx context.Context, v *visit, p owners.NodePlan) {
	var is closedGates
	late := map[string]taint.Gate{}
	for _, gate := range p.Gates {
		is.closed, is.since = is.closed+1, v.node.Object.CreationTimestamp.Unix()
		if at := v.lateAt(gate); !at.IsZero() && !at.After(v.now) {
			late[taint.IDOf(gate.Taint).String()] = gate
		}
	}
	is.late = taint.Join(slices.Collect(maps.Keys(late)))
	known := taint.Split(r.gates.set(v.NodeRequest, is).late)
	for _, id := range taint.Split(is.late) {
		if gate := late[id]; !slices.Contains(known, id) {
			r.Recorder.Eventf(r.declaring(ctx, v, p, taint.IDOf(gate.Taint)), nil, corev1.EventTypeWarning, reasonStartupGateStuck, "Open",
				"Start-up gate %s is still closed on Node %s: it waits for %s", gate, v.Name, taint.Requirements(v.awaits(gate)))
		}
	}
}
