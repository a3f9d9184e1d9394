// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	controlPlaneRole = "node-role.kubernetes.io/control-plane"
	retry            = 500 * time.Millisecond
)

// initialize creates the objects in the workload cluster that kubeadm creates on a control plane Machine, and that the kubeadm
// control-plane manager reads. All control plane Machines share the API server of the tests.
func (i *Infrastructure) initialize(ctx context.Context, key client.ObjectKey) error {
	objects := []client.Object{&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"},
		Data:       map[string]string{"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"},
	}}
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		objects = append(objects, staticPod(component, key.Name))
	}
	for _, o := range objects {
		if err := i.workload.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating what kubeadm creates: %w", err)
		}
		if pod, ok := o.(*corev1.Pod); ok {
			if err := i.runPod(ctx, pod); err != nil {
				return err
			}
		}
	}
	return i.expire(ctx, key)
}

// staticPod returns the Pod of a component. It is bound to no Node, because a hollow kubelet would end Pods that it has not started.
func staticPod(component, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: component + "-" + node,
			Labels: map[string]string{"component": component, "tier": "control-plane"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: component, Image: "registry.k8s.io/" + component}}},
	}
}

func (i *Infrastructure) runPod(ctx context.Context, pod *corev1.Pod) error {
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodScheduled, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue})
	}
	if err := i.workload.Status().Patch(ctx, pod, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("reporting Pod %s as ready: %w", pod.Name, err)
	}
	return nil
}

// expire sets the expiry date of the certificate of a Machine's API server. Without it, the control-plane manager would connect to this
// server through its kubelet, which a hollow kubelet does not support.
func (i *Infrastructure) expire(ctx context.Context, key client.ObjectKey) error {
	config := object(kubeadmConfig())
	if err := i.live.Get(ctx, key, config); err != nil {
		return client.IgnoreNotFound(err)
	}
	return i.change(ctx, config, func() {
		annotations := config.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[clusterv1.MachineCertificatesExpiryDateAnnotation] = "2126-01-01T00:00:00Z"
		config.SetAnnotations(annotations)
	})
}

// markControlPlane adds the label of control plane Nodes, as kubeadm does; a kubelet may not set it. It returns false while the Node does
// not exist.
func (i *Infrastructure) markControlPlane(ctx context.Context, name string) (bool, error) {
	node := &corev1.Node{}
	if err := i.workload.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if _, marked := node.Labels[controlPlaneRole]; marked {
		return true, nil
	}
	before := node.DeepCopy()
	node.Labels[controlPlaneRole] = ""
	return true, i.workload.Patch(ctx, node, client.MergeFrom(before))
}

func kubeadmConfig() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmConfig"}
}
