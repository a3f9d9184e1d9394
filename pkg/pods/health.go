// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// mostPending limits the number of Pods that are read: the answer is the same for more.
	mostPending = 500
	// mostNamed is the number of Pods, and of Nodes, that Harm names.
	mostNamed = 5
)

// Harm describes what Harmed has found; "" if it has found nothing.
func Harm(unschedulable, notReady []string, since time.Time) string {
	var parts []string
	add := func(what string, names []string) {
		if len(names) == 0 {
			return
		}
		some := slices.Sorted(slices.Values(names))
		if len(some) > mostNamed {
			some = append(some[:mostNamed], "…")
		}
		parts = append(parts, fmt.Sprintf("%d %s since %s (%s)", len(names), what, since.UTC().Format(time.RFC3339), strings.Join(some, ", ")))
	}
	add("Nodes that are not ready", notReady)
	add("unschedulable Pods", unschedulable)
	return strings.Join(parts, ", ")
}

// Harmed returns the Pods, as "<namespace>/<name>", that have become unschedulable since a time, and the Nodes that existed then and are not
// ready any more. With an error about the Pods, it returns the Nodes.
func Harmed(ctx context.Context, live client.Reader, nodes []corev1.Node, since time.Time) (unschedulable, notReady []string, err error) {
	for i := range nodes {
		node := &nodes[i]
		if node.DeletionTimestamp == nil && node.CreationTimestamp.Time.Before(since) && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && !c.LastTransitionTime.Time.Before(since)
		}) {
			notReady = append(notReady, node.Name)
		}
	}
	list := &corev1.PodList{}
	if err := live.List(ctx, list, client.MatchingFields{"spec.nodeName": ""}, client.Limit(mostPending)); err != nil {
		return nil, notReady, fmt.Errorf("listing the Pods without a Node: %w", err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.DeletionTimestamp == nil && pod.Spec.NodeName == "" && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable &&
				!c.LastTransitionTime.Time.Before(since)
		}) {
			unschedulable = append(unschedulable, pod.Namespace+"/"+pod.Name)
		}
	}
	return unschedulable, notReady, nil
}
