// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// KubeletOptions describes the kubelet of one Node.
type KubeletOptions struct {
	// Name is the name of the Node. The kubelet's user is system:node:<name>, its group system:nodes.
	Name string
	// RegisterWithTaints are the taints of its registration, each key=value:effect.
	RegisterWithTaints []string
	// Dir is the directory of <name>.log and <name>.kubeconfig.
	Dir string
}

// kubeletFiles matches the paths of kubemark's files in /tmp in its log.
var kubeletFiles = regexp.MustCompile(`/tmp/(hollow-kubelet\.[0-9]+|kubelet_remote_[0-9]+\.sock)`)

// Kubelet is a kubelet with a fake container runtime (kubemark). It registers its Node and reports its status like any kubelet.
type Kubelet struct {
	*Process
	name, log string
	config    *rest.Config
}

// StartKubelet starts a kubelet. It stops when ctx is done, or with its own Stop or the control plane's.
func (cp *ControlPlane) StartKubelet(ctx context.Context, options KubeletOptions) (*Kubelet, error) {
	kubemark, err := program(toolsVariable, "kubemark")
	if err != nil {
		return nil, err
	}
	user, groups := "system:node:"+options.Name, "system:nodes"
	k := &Kubelet{name: options.Name, log: filepath.Join(options.Dir, options.Name+".log")}
	if k.config, err = cp.User(user, groups); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(options.Dir, options.Name+".kubeconfig")
	if err := cp.WriteKubeconfig(kubeconfig, user, groups); err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	k.Process, err = StartProcess(ctx, kubemark, []string{
		"--morph=kubelet",
		"--name=" + options.Name,
		"--kubeconfig=" + kubeconfig,
		"--register-with-taints=" + strings.Join(options.RegisterWithTaints, ","),
		fmt.Sprintf("--kubelet-port=%d", port),
		"--kubelet-read-only-port=0",
		// Otherwise the kubelet asks the containerd of this machine for images.
		"--use-host-image-service=false",
		"--vmodule=remote_runtime=3", // so that its log has the path of its socket
	}, k.log)
	if err != nil {
		return nil, err
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.kubelets = append(cp.kubelets, k)
	return k, nil
}

// Stop stops the process and removes a directory and a socket of the kubelet, which kubemark always creates in /tmp and never removes. The
// first call reads the kubelet's log, which must still exist.
func (k *Kubelet) Stop() error {
	errs := []error{k.Process.Stop()}
	content, _ := os.ReadFile(k.log) // another call may have been first
	for _, file := range kubeletFiles.FindAllString(string(content), -1) {
		errs = append(errs, os.RemoveAll(file))
	}
	return errors.Join(errs...)
}

// WaitRegistered waits until the Node exists and returns it, with the rights of the kubelet.
func (k *Kubelet) WaitRegistered(ctx context.Context) (*corev1.Node, error) {
	clientset, err := kubernetes.NewForConfig(k.config)
	if err != nil {
		return nil, fmt.Errorf("making a client for kubelet %s: %w", k.name, err)
	}
	var node *corev1.Node
	err = k.wait(ctx, "registering Node "+k.name, func(ctx context.Context) error {
		node, err = clientset.CoreV1().Nodes().Get(ctx, k.name, metav1.GetOptions{})
		return err
	})
	return node, err
}
