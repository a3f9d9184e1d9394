// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/workload"
)

// gateEvery is the time until the next look for a ready Pod that opens a start-up gate: Pods are not watched.
const gateEvery = 10 * time.Second

// findReadyPods is the step that looks for ready Pods of the DaemonSets that closed gates of the Node wait for: these gates may open. If
// another change is to be written, the look has time until then. After an error, the gates stay closed, and the Node inherits everything
// else.
func (r *nodes) findReadyPods(ctx context.Context, v *visit, p owners.NodePlan) (requeueAfter time.Duration, err error) {
	var awaited []types.NamespacedName
	for _, gate := range p.Gates {
		if gate.DaemonSet.Name != "" {
			awaited = append(awaited, gate.DaemonSet)
		}
	}
	switch {
	case len(awaited) == 0:
		return 0, nil
	case p.Changes():
		return gateEvery, nil
	}
	ready := sets.New[types.NamespacedName]()
	requeueAfter, err = r.clusters.try(v.Cluster, func() (sent bool, err error) {
		live, err := r.uncached(ctx, v.Cluster)
		if err != nil {
			return false, err
		}
		for _, wanted := range awaited {
			pods := &corev1.PodList{}
			if err := live.List(ctx, pods, client.InNamespace(wanted.Namespace), client.MatchingFields{"spec.nodeName": v.Name}); err != nil {
				return true, fmt.Errorf("looking for a ready Pod of DaemonSet %s: %w", wanted, err)
			}
			if slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return opens(&pod, wanted.Name) }) {
				ready.Insert(wanted)
			}
		}
		return true, nil
	})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to look for Pods that open start-up gates; retrying")
		r.Recorder.Eventf(p.Source.Object, nil, corev1.EventTypeWarning, reasonInheritanceFailed, "Open",
			"Failed to check the start-up gates of Node %s: %v", v.Name, workload.Told(err))
	}
	v.turn.Ready, v.allowed = ready, v.allowed || len(ready) > 0
	if len(ready) < len(awaited) { // without a free slot, the next look comes sooner
		requeueAfter = sooner(requeueAfter, gateEvery)
	}
	return requeueAfter, nil
}

// opens reports whether a Pod is a ready Pod of a DaemonSet of its namespace.
func opens(pod *corev1.Pod, daemonSet string) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.Name == daemonSet && pod.DeletionTimestamp == nil &&
		slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}
