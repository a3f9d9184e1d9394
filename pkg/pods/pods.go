// SPDX-License-Identifier: Apache-2.0

// Package pods finds the Pods that must leave a Node because of a taint with effect NoExecute.
package pods

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Runs reports whether a taint can evict the Pod: it has not ended, and it is not static. A kubelet lets its static Pods tolerate every
// NoExecute taint.
func Runs(pod *corev1.Pod) bool {
	_, static := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return !static && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// OfDaemonSet reports whether a DaemonSet controls the Pod.
func OfDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// Toleration returns the first toleration of a Pod that matches the taint, or nil. Only the first match counts.
func Toleration(pod *corev1.Pod, t corev1.Taint) *corev1.Toleration {
	for i := range pod.Spec.Tolerations {
		if pod.Spec.Tolerations[i].ToleratesTaint(logr.Discard(), &t, true) {
			return &pod.Spec.Tolerations[i]
		}
	}
	return nil
}

// Budgets returns the names of the PodDisruptionBudgets that select a Pod, as "<namespace>/<name>".
func Budgets(pod *corev1.Pod, all []policyv1.PodDisruptionBudget) (names []string) {
	for i := range all {
		selector, err := metav1.LabelSelectorAsSelector(all[i].Spec.Selector)
		if err == nil && all[i].Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			names = append(names, all[i].Namespace+"/"+all[i].Name)
		}
	}
	return names
}

// ToEvict returns the Pods that must leave a Node before it gets the taints, so that their disruption budgets count. A Pod with
// tolerationSeconds is among them: after this time, it would be evicted without regard to a budget. A Pod of a DaemonSet is not: the
// DaemonSet would create it again, and no budget counts for it. A Pod whose time to terminate is over is not included either.
func ToEvict(ctx context.Context, live client.Reader, node string, taints []corev1.Taint, now time.Time) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := live.List(ctx, list, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("listing the Pods of the Node: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		evicted := slices.ContainsFunc(taints, func(t corev1.Taint) bool {
			tolerated := Toleration(&pod, t)
			return tolerated == nil || tolerated.TolerationSeconds != nil
		})
		over := pod.DeletionTimestamp != nil && !now.Before(pod.DeletionTimestamp.Time)
		return !evicted || over || !Runs(&pod) || OfDaemonSet(&pod)
	}), nil
}
