// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"bytes"
	"context"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// Workload is the control plane of a workload cluster. Heirloom connects to it through a door that can be shut.
type Workload struct {
	*controlplane.ControlPlane
	// Client has the rights of an administrator and does not use the door.
	Client client.Client
	Door   *Door
}

// UseWorkload makes a running API server the workload cluster of a stored Cluster: it creates the kubeconfig Secret and reports the
// infrastructure as provisioned. The caller shuts the door at the end.
func (s *Stage) UseWorkload(ctx context.Context, cluster *clusterv1.Cluster, cp *controlplane.ControlPlane) (*Workload, error) {
	w := &Workload{ControlPlane: cp}
	if err := w.open(); err != nil {
		return nil, err
	}
	if err := s.lead(ctx, cluster, w); err != nil {
		w.Door.Shut()
		return nil, err
	}
	return w, nil
}

// lead does the work of a control plane provider and an infrastructure provider.
func (s *Stage) lead(ctx context.Context, cluster *clusterv1.Cluster, w *Workload) error {
	secret, err := w.secret(cluster, "heirloom")
	if err != nil {
		return err
	}
	if err := s.Client.Create(ctx, secret); err != nil {
		return fmt.Errorf("creating the kubeconfig Secret: %w", err)
	}
	before := cluster.DeepCopy()
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	if err := s.Client.Status().Patch(ctx, cluster, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("reporting the infrastructure as provisioned: %w", err)
	}
	return nil
}

func (w *Workload) open() error {
	var err error
	if w.Client, err = client.New(w.AdminConfig(), client.Options{Scheme: Scheme()}); err != nil {
		return fmt.Errorf("making an administrator's client: %w", err)
	}
	server, err := url.Parse(w.AdminConfig().Host)
	if err != nil {
		return fmt.Errorf("reading the address of the workload cluster: %w", err)
	}
	w.Door, err = NewDoor(server.Host)
	return err
}

// secret returns a Cluster's Secret with the kubeconfig of an administrator who uses the door.
func (w *Workload) secret(cluster *clusterv1.Cluster, user string) (*corev1.Secret, error) {
	kubeconfig, err := w.Kubeconfig(user, "system:masters")
	kubeconfig = bytes.ReplaceAll(kubeconfig, []byte("https://"+w.Door.behind), []byte("https://"+w.Door.Address()))
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name + "-kubeconfig", Labels: clusterLabel(cluster.Name)},
		Type:       clusterv1.ClusterSecretType, Data: map[string][]byte{"value": kubeconfig},
	}, err
}

// Rotate replaces the kubeconfig of a Cluster with a kubeconfig of another user and another door. The previous door stays shut.
func (s *Stage) Rotate(ctx context.Context, cluster *clusterv1.Cluster, w *Workload) error {
	w.Door.Shut()
	if err := w.open(); err != nil {
		return err
	}
	secret, err := w.secret(cluster, "heirloom-rotated")
	if err != nil {
		return err
	}
	if err := s.Client.Update(ctx, secret); err != nil {
		return fmt.Errorf("replacing the kubeconfig Secret: %w", err)
	}
	return nil
}
