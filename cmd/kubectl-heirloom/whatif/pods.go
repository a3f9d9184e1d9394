// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Pod is a Pod that a taint is about.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node"`
	// DaemonSet says that a DaemonSet has made the Pod, and makes none on a Node whose taints the Pod does not tolerate.
	DaemonSet bool `json:"daemonSet,omitempty"`
	// AfterSeconds is how long the Pod tolerates the taint; 0 if not at all.
	AfterSeconds int64 `json:"afterSeconds"`
}

func (p Pod) String() string {
	if p.DaemonSet {
		return p.Namespace + "/" + p.Name + " (DaemonSet)"
	}
	return p.Namespace + "/" + p.Name
}

// workloads are the Pods of a workload cluster by their Nodes, and its PodDisruptionBudgets.
type workloads struct {
	pods    map[string][]*corev1.Pod
	budgets []policyv1.PodDisruptionBudget
}

// readWorkloads reads the Pods that run.
func readWorkloads(ctx context.Context, from client.Reader) (workloads, error) {
	w := workloads{pods: map[string][]*corev1.Pod{}}
	pods, budgets := &corev1.PodList{}, &policyv1.PodDisruptionBudgetList{}
	if err := from.List(ctx, pods); err != nil {
		return w, fmt.Errorf("listing Pods: %w", err)
	}
	if err := from.List(ctx, budgets); err != nil {
		return w, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; runs(pod) {
			w.pods[pod.Spec.NodeName] = append(w.pods[pod.Spec.NodeName], pod)
		}
	}
	w.budgets = budgets.Items
	return w, nil
}

// runs reports whether a taint matters to a Pod. A static Pod is not scheduled, and its kubelet makes it tolerate all that evicts.
func runs(pod *corev1.Pod) bool {
	_, static := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return !static && pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// tolerates reports whether a Pod tolerates a taint, and for how long; for ever, if that is nil. Of several tolerations, the first
// that matches counts, as it does when Pods are evicted.
func tolerates(pod *corev1.Pod, t corev1.Taint) (tolerated bool, seconds *int64) {
	for i := range pod.Spec.Tolerations {
		if toleration := &pod.Spec.Tolerations[i]; toleration.ToleratesTaint(logr.Discard(), &t, true) {
			return true, toleration.TolerationSeconds
		}
	}
	return false, nil
}

func podOf(pod *corev1.Pod) Pod {
	owner := metav1.GetControllerOfNoCopy(pod)
	return Pod{Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, DaemonSet: owner != nil && owner.Kind == "DaemonSet"}
}

// covers reports whether a PodDisruptionBudget is about a Pod.
func covers(budget *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	return err == nil && budget.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels))
}
