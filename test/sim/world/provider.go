// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// provide plays an infrastructure provider and the kubelets of its machines: each FakeMachine becomes a Node of the same name. It reads the
// stores every second, which is no request, until ctx is done.
func (w *World) provide(ctx context.Context) error {
	provider, err := w.management.as(providerUser)
	if err != nil {
		return err
	}
	for seen := -1; ctx.Err() == nil; sleep(ctx, time.Second) {
		writes := w.history.writes()
		if writes == seen {
			continue
		}
		done := true
		for _, infra := range w.management.objects("FakeMachine") {
			done = w.provision(ctx, provider, infra) && done
		}
		if done {
			seen = writes
		}
	}
	return nil
}

// provision takes the next step of a machine, and reports whether no step is left. A failed step is tried again in the next second.
func (w *World) provision(ctx context.Context, provider client.Client, infra *unstructured.Unstructured) bool {
	if infra.GetDeletionTimestamp() != nil || w.booted[infra.GetUID()] {
		return true
	}
	if id, _, _ := unstructured.NestedString(infra.Object, "spec", "providerID"); id == "" {
		_ = provider.Patch(ctx, infra, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"providerID":"fake://`+infra.GetName()+`"}}`)))
		return false
	}
	if provisioned, _, _ := unstructured.NestedBool(infra.Object, "status", "initialization", "provisioned"); !provisioned {
		_ = provider.Status().Patch(ctx, infra, client.RawPatch("application/merge-patch+json",
			[]byte(`{"status":{"ready":true,"initialization":{"provisioned":true},"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}`)))
		return false
	}
	for _, of := range w.clusters {
		if of.key.Name == infra.GetLabels()[clusterv1.ClusterNameLabel] && w.left(awayOf(of.key.Name)) <= 0 {
			w.booted[infra.GetUID()] = w.register(ctx, of, infra.GetName()) == nil
		}
	}
	return w.booted[infra.GetUID()]
}

// register plays a kubelet that creates its Node, and then reports that the Node is ready.
func (w *World) register(ctx context.Context, of *cluster, name string) error {
	kubelet, err := of.as(kubeletPrefix+name, "system:nodes", "system:authenticated")
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	node.Spec.ProviderID = "fake://" + name
	node.Spec.Taints = []corev1.Taint{clusterv1.NodeUninitializedTaint}
	if err := kubelet.Create(ctx, node); err != nil {
		w.history.refused(name, err)
		return err
	}
	patch := client.MergeFrom(node.DeepCopy())
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	return client.IgnoreNotFound(kubelet.Status().Patch(ctx, node, patch))
}
