// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const foreignKey = "foreign.example.com/key"

func drawForeign(d draws) Action {
	return Action{Who: d.cluster(), Value: fmt.Sprint(d.below(100)), N: min(1, d.below(4))}
}

// foreignWrite is a foreign writer that sets its own keys on the Nodes of a Cluster. "foreign clear" also removes all other taints,
// with number 1 only those that do not belong to the start of a Node.
func foreignWrite(ctx context.Context, w *World, a Action) {
	w.foreign(ctx, a, 0, func(node *corev1.Node) {
		metav1.SetMetaDataLabel(&node.ObjectMeta, foreignKey, a.Value)
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, foreignKey, a.Value)
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == foreignKey || a.What == "foreign clear" && (a.N == 0 || !slices.Contains(startKeys, t.Key))
		})
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: foreignKey, Value: a.Value, Effect: corev1.TaintEffectPreferNoSchedule})
	})
}

// staleTaints is a foreign writer that writes back complete lists of taints that it has read a while ago.
func staleTaints(ctx context.Context, w *World, a Action) {
	w.foreign(ctx, a, a.Lasts.Duration, func(*corev1.Node) {})
}

// foreign reads the Nodes of a Cluster now, and writes its keys and all taints a while later.
func (w *World) foreign(ctx context.Context, a Action, after time.Duration, change func(*corev1.Node)) {
	writer, err := w.cluster(a.Who).as(foreignUser)
	w.history.must(err)
	nodes := &corev1.NodeList{}
	w.history.must(writer.List(ctx, nodes))
	w.later(ctx, after, func() {
		for i := range nodes.Items {
			node := &nodes.Items[i]
			change(node)
			patch, err := json.Marshal(map[string]any{
				"metadata": map[string]any{"labels": only(node.Labels), "annotations": only(node.Annotations)}, "spec": map[string]any{"taints": node.Spec.Taints},
			})
			w.history.must(err)
			w.history.must(client.IgnoreNotFound(writer.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))))
		}
	})
}

func only(all map[string]string) map[string]string {
	if value, ok := all[foreignKey]; ok {
		return map[string]string{foreignKey: value}
	}
	return map[string]string{} // null would remove all
}

func drawNeighbour(d draws) Action {
	return Action{N: d.below(10), Key: d.oneOf(labels...), Value: d.oneOf(values...)}
}

// neighbour is a controller that applies a label, which operators declare too, to a Machine.
func neighbour(ctx context.Context, w *World, a Action) {
	machines := w.management.objects("Machine")
	if len(machines) == 0 {
		return
	}
	machine := machines[a.N%len(machines)]
	if machine.GetDeletionTimestamp() == nil {
		w.applies(ctx, machine, map[string]any{a.Key: a.Value})
	}
}

// withdraw removes what the neighbour has applied.
func (w *World) withdraw(ctx context.Context) {
	for _, machine := range w.management.objects("Machine") {
		if len(machine.GetManagedFields()) > 0 && machine.GetDeletionTimestamp() == nil && manages(machine, neighbourUser) {
			w.applies(ctx, machine, map[string]any{})
		}
	}
}

func (w *World) applies(ctx context.Context, machine *unstructured.Unstructured, labels map[string]any) {
	by, err := w.management.as(neighbourUser)
	w.history.must(err)
	applied := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"labels": labels}}}
	applied.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	applied.SetNamespace(machine.GetNamespace())
	applied.SetName(machine.GetName())
	applied.SetUID(machine.GetUID()) // does not create it anew
	err = by.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(neighbourUser), client.ForceOwnership)
	if !apierrors.IsConflict(err) { // the Machine has gone
		w.history.must(client.IgnoreNotFound(err))
	}
}

func manages(object *unstructured.Unstructured, manager string) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(of metav1.ManagedFieldsEntry) bool { return of.Manager == manager })
}

// kubeletWrite is a kubelet that removes all entries of its Node that it may remove: annotations, and labels that are not restricted.
// Without the admission plugin NodeRestriction, it also removes all taints.
func kubeletWrite(ctx context.Context, w *World, a Action) {
	node, kubelet := w.kubelet(w.cluster(a.Who), a.N)
	if node == nil {
		return
	}
	none := map[string]any{}
	for key := range node.GetAnnotations() {
		if key != foreignKey {
			none[key] = nil
		}
	}
	change := map[string]any{"metadata": map[string]any{"labels": map[string]any{"node.cluster.x-k8s.io/tier": nil}, "annotations": none}}
	if w.options.Unguarded {
		change["spec"] = map[string]any{"taints": foreignTaints(node)}
	}
	patch, err := json.Marshal(change)
	w.history.must(err)
	w.history.must(client.IgnoreNotFound(kubelet.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))))
}

func foreignTaints(node *unstructured.Unstructured) []corev1.Taint {
	return slices.DeleteFunc(taintsOf(node), func(t corev1.Taint) bool { return t.Key != foreignKey })
}

// kubelet returns a Node and the client of its kubelet, or nil if there is no Node.
func (w *World) kubelet(of *cluster, n int) (*unstructured.Unstructured, client.Client) {
	nodes := of.objects("Node")
	if len(nodes) == 0 {
		return nil, nil
	}
	node := nodes[n%len(nodes)]
	kubelet, err := of.as(kubeletPrefix+node.GetName(), "system:nodes", "system:authenticated")
	w.history.must(err)
	return node, kubelet
}
