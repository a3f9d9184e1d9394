// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

const (
	schedulerUser = "scheduler"
	// appPod starts the names of Pods that a taint with evictKey evicts. They tolerate all other taints that operators declare.
	appPod, evictKey = "app-", "gpu"
)

func budgetOf(cluster string) string { return "the budget of " + cluster }

// holdBudget is a disruption budget that lets no Pod of a Cluster be evicted for a while.
func holdBudget(_ context.Context, w *World, a Action) {
	w.goesWrong(budgetOf(a.Who), a.Lasts.Duration)
}

// tolerations returns the tolerations of a Pod.
func tolerations() (all []corev1.Toleration) {
	for _, key := range append([]string{corev1.TaintNodeNotReady, "dedicated", "typed", foreignKey}, startKeys...) {
		all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	return all
}

// repels reports whether a Node has a taint, with one of the effects, that Pods do not tolerate.
func repels(node *unstructured.Unstructured, effects ...corev1.TaintEffect) bool {
	return slices.ContainsFunc(taintsOf(node), func(t corev1.Taint) bool {
		return slices.Contains(effects, t.Effect) && !slices.ContainsFunc(tolerations(), func(of corev1.Toleration) bool { return of.ToleratesTaint(logr.Discard(), &t, true) })
	})
}

// runPods plays a ReplicaSet with a Pod for each Node, the scheduler, and the controllers that delete Pods of Nodes that have gone or that
// got taints with effect NoExecute. It looks for work every second, until ctx is done.
func (w *World) runPods(ctx context.Context) error {
	for seen := -1; ctx.Err() == nil; sleep(ctx, time.Second) {
		writes := w.history.writes()
		if writes == seen {
			continue
		}
		seen = writes
		for _, of := range w.clusters {
			by, err := of.as(schedulerUser)
			if err != nil {
				return err
			}
			w.schedule(ctx, of, by)
		}
	}
	return nil
}

// schedule takes the steps for the Pods of a Cluster. A failed step is tried again after the next write.
func (w *World) schedule(ctx context.Context, of *cluster, by client.Client) {
	nodes, pods := of.objects("Node"), map[string]int{}
	for _, pod := range of.objects("Pod") {
		on := decoded[corev1.Pod](pod).Spec.NodeName
		stays := slices.ContainsFunc(nodes, func(node *unstructured.Unstructured) bool {
			return node.GetName() == on && !repels(node, corev1.TaintEffectNoExecute)
		})
		switch {
		case !strings.HasPrefix(pod.GetName(), appPod):
		case stays:
			pods[on]++
			pods[""]++
		default:
			_ = by.Delete(ctx, pod)
		}
	}
	for ; pods[""] < len(nodes); pods[""]++ {
		free := slices.DeleteFunc(slices.Clone(nodes), func(node *unstructured.Unstructured) bool {
			return decoded[corev1.Node](node).Spec.Unschedulable || repels(node, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
		})
		if len(free) == 0 {
			return
		}
		on := slices.MinFunc(free, func(a, b *unstructured.Unstructured) int { return cmp.Compare(pods[a.GetName()], pods[b.GetName()]) }).GetName()
		w.pods++
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: appPod + fmt.Sprint(w.pods)}}
		pod.Spec.NodeName, pod.Spec.Tolerations = on, tolerations()
		pods[on]++
		_ = by.Create(ctx, pod)
	}
}

// runs remembers since when a Pod is on its Node, and checks that Heirloom evicts Pods only from Nodes that wait for them to leave.
func (h *history) runs(w apiserver.Write) {
	object := cmp.Or(w.After, w.Before)
	if !strings.HasPrefix(object.GetName(), appPod) {
		return
	}
	on := decoded[corev1.Pod](object).Spec.NodeName
	soft := h.soft[on]
	if w.After == nil && strings.HasPrefix(w.User, heirloomUser) && !soft.yes && time.Since(soft.at) > h.takes() {
		h.violate("%s evicts Pod %s from Node %s, which does not wait for it", w.User, object.GetName(), on)
	}
	if h.running[on] == nil {
		h.running[on] = map[string]time.Time{}
	}
	if delete(h.running[on], object.GetName()); w.After != nil {
		h.running[on][object.GetName()] = object.GetCreationTimestamp().Time
	}
}

// letsPodsLeave checks that Heirloom brings no taint that evicts Pods to a Node in use that has Pods which the taint would evict. A taint that
// the Node has had before is restored at once.
func (h *history) letsPodsLeave(w apiserver.Write) {
	name := w.After.GetName()
	_, listed := w.Before.GetAnnotations()[clusterv1.TaintsFromMachineAnnotation]
	if !listed || !isWritten(w.Before) || !strings.HasPrefix(w.User, heirloomUser) {
		return // a Node that counts as new, perhaps because its own kubelet says so
	}
	for _, t := range taintsOf(w.After) {
		id := taint.IDOf(t).String()
		had := slices.ContainsFunc(inherit.TrackingAnnotations, func(list string) bool {
			return strings.Contains(w.Before.GetAnnotations()[list], id) || strings.Contains(w.Before.GetAnnotations()[list], taint.Format(t))
		})
		if t.Key != evictKey || t.Effect != corev1.TaintEffectNoExecute || had || has(w.Before, id) {
			continue
		}
		for _, pod := range slices.Sorted(maps.Keys(h.running[name])) {
			if time.Since(h.running[name][pod]) > h.takes() {
				h.violate("%s brings %s to Node %s, where Pod %s still runs", w.User, taint.Format(t), name, pod)
			}
		}
	}
}

// softens remembers whether a Node waits for its Pods.
func (h *history) softens(w apiserver.Write) {
	name := w.After.GetName()
	before := h.soft[name]
	if _, valid := gatesIn(w.After); valid || before.yes {
		if now := valid && inherit.WaitsForPods(decoded[corev1.Node](w.After)); now != before.yes {
			h.soft[name] = since{now, time.Now()}
		}
	}
}

// softensFew checks that no more than a tenth of a set, and one Node, wait for their Pods at a time.
func (h *history) softensFew(w apiserver.Write) {
	name := w.After.GetName()
	before, set := h.soft[name], h.members[name]
	h.softens(w)
	if !h.soft[name].yes || before.yes || !strings.HasPrefix(w.User, heirloomUser) || set == "" {
		return
	}
	nodes, waiting := 0, 0
	for other, of := range h.members {
		if of != set || h.asked[h.ownersOf(other)[0]] == nil { // or its Machine is being deleted
			continue
		}
		nodes++
		if soft := h.soft[other]; other != name && soft.yes && time.Since(soft.at) > h.takes("nodes", "machines") {
			waiting++
		}
	}
	if waiting >= max(1, nodes/10) {
		h.violate("%s lets Node %s wait for its Pods, although %d Nodes of %s wait already", w.User, name, waiting, set)
	}
}
