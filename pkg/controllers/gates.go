// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
)

// gateEvery is the time until the next look for a ready Pod that opens a start-up gate: Pods are not watched.
const gateEvery = 10 * time.Second

// planWithGates plans for the Node. If no other change is to be written and a Pod that opens a start-up gate is ready, it plans again.
func (r *nodes) planWithGates(ctx context.Context, v *visit) (nodePlan, error) {
	p, err := r.plan(ctx, r.Chain, *v)
	if err == nil && !p.due() && r.findReady(ctx, v, p) {
		return r.plan(ctx, r.Chain, *v)
	}
	return p, err
}

// openGates removes the taints of open start-up gates from the plan's result, and remembers the DaemonSets of closed gates in awaited.
func (p *nodePlan) openGates(v visit) {
	p.result = p.Source.OpenGates(p.result, v.node.Status.Conditions, v.ready)
	for _, gate := range p.Source.ClosedGates(p.result) {
		if gate.DaemonSet.Name != "" {
			p.awaited, p.again = append(p.awaited, gate.DaemonSet), sooner(p.again, gateEvery)
		}
	}
}

// findReady looks for ready Pods of the DaemonSets that closed gates of the Node wait for, and reports whether it has found any. After an
// error, the gates stay closed, and the Node inherits everything else.
func (r *nodes) findReady(ctx context.Context, v *visit, p nodePlan) bool {
	if len(p.awaited) == 0 {
		return false
	}
	v.ready = sets.New[types.NamespacedName]()
	_, err := r.clusters.try(v.Cluster, func() (sent bool, err error) {
		live, err := r.uncached(ctx, v.Cluster)
		if err != nil {
			return false, err
		}
		for _, wanted := range p.awaited {
			pods := &corev1.PodList{}
			if err := live.List(ctx, pods, client.InNamespace(wanted.Namespace), client.MatchingFields{"spec.nodeName": v.Name}); err != nil {
				return true, fmt.Errorf("looking for a ready Pod of DaemonSet %s: %w", wanted, err)
			}
			if slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return opens(&pod, wanted.Name) }) {
				v.ready.Insert(wanted)
			}
		}
		return true, nil
	})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to look for Pods that open start-up gates; retrying")
		r.Recorder.Eventf(p.from.Object, nil, corev1.EventTypeWarning, reasonInheritanceFailed, "Open",
			"Failed to check the start-up gates of Node %s: %v", v.Name, workload.Told(err))
	}
	return len(v.ready) > 0
}

// opens reports whether a Pod is a ready Pod of a DaemonSet of its namespace.
func opens(pod *corev1.Pod, daemonSet string) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.Name == daemonSet && pod.DeletionTimestamp == nil &&
		slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
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

// tellOpened reports on the Node's Machine or MachinePool which start-up gates a write has opened.
func (r *nodes) tellOpened(p nodePlan, node *corev1.Node) {
	if opened := inherit.OpenedGates(p.result).Difference(inherit.OpenedGates(p.current)); len(opened) > 0 {
		r.Recorder.Eventf(p.from.Object, nil, corev1.EventTypeNormal, reasonStartupGateOpened, "Open",
			"Start-up gates of Node %s are open: removed %s", node.Name, strings.Join(sets.List(opened), ", "))
	}
}
