// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// kubelet returns a client with the rights of a Node's kubelet.
func (w *world) kubelet(name string) (*corev1client.CoreV1Client, error) {
	config := w.workload.AdminConfig()
	// For authorization and admission, it comes to the same as a certificate of its own, and takes no key.
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + name, Groups: []string{"system:nodes"}}
	kubelet, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for a kubelet: %w", err)
	}
	return kubelet, nil
}

// register creates a Machine's Node as its kubelet does.
func (w *world) register(ctx context.Context, name string) error {
	kubelet, err := w.kubelet(name)
	if err != nil {
		return err
	}
	if _, err := kubelet.Nodes().Create(ctx, registered(name), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating Node %s: %w", name, err)
	}
	return nil
}
