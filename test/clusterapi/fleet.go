// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// KubernetesVersion is the version of a Fleet's Clusters.
const KubernetesVersion = "v1.36.0"

// ClassName is the name of a Fleet's ClusterClass.
const ClassName = "class"

//go:embed class.yaml
var class string

// Fleet is a management cluster with Cluster API's core manager, its kubeadm managers and its in-memory provider, with or without
// Heirloom. Its Clusters come from a ClusterClass and have everything that a Cluster has but containers.
type Fleet struct {
	*stage.Stage
	Managers *Managers
}

// NewFleet starts a Fleet without Clusters. options are the stage's.
func NewFleet(ctx context.Context, options stage.Options, managers Options) (*Fleet, error) {
	crds, err := FleetCRDs(ctx)
	if err != nil {
		return nil, err
	}
	options.ControlPlane.CRDPaths = crds
	f := &Fleet{}
	if f.Stage, err = stage.New(ctx, options); err != nil {
		return nil, err
	}
	managers.Dir, managers.Kubeadm, managers.InMemory = options.Dir, true, true
	if f.Managers, err = Start(ctx, f.ControlPlane, managers); err != nil {
		return nil, errors.Join(err, f.Stage.Stop())
	}
	return f, nil
}

// Stop stops all programs.
func (f *Fleet) Stop() error { return errors.Join(f.Managers.Stop(), f.Stage.Stop()) }

// FleetCRDs returns the directories with the CustomResourceDefinitions of a Fleet's managers.
func FleetCRDs(ctx context.Context) ([]string, error) {
	crds, err := controlplane.CAPICRDPaths()
	if err != nil {
		return nil, err
	}
	_, dir, _, err := controlplane.DockerProvider(ctx)
	return append(crds, filepath.Join(dir, "config", "crd", "bases")), err
}

// CreateClass creates a namespace with the ClusterClass and its templates. change changes each object before.
func CreateClass(ctx context.Context, c client.Client, namespace string, change func(client.Object)) error {
	objects, err := controlplane.DecodeObjects(class)
	if err != nil {
		return fmt.Errorf("decoding the ClusterClass: %w", err)
	}
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("creating namespace %s: %w", namespace, err)
	}
	for i := range objects {
		objects[i].SetNamespace(namespace)
		change(&objects[i])
		if err := c.Create(ctx, &objects[i]); err != nil {
			return fmt.Errorf("creating %s %s: %w", objects[i].GetKind(), objects[i].GetName(), err)
		}
	}
	return nil
}

// OfClass returns a Cluster of the ClusterClass with a control plane of one Machine, and with workers.
func OfClass(namespace, name string, workers int32) *clusterv1.Cluster {
	cluster := stage.Cluster(namespace, name)
	cluster.Spec.Topology = clusterv1.Topology{
		ClassRef: clusterv1.ClusterClassRef{Name: ClassName}, Version: KubernetesVersion,
		ControlPlane: clusterv1.ControlPlaneTopology{Replicas: ptr.To[int32](1)},
		Workers: clusterv1.WorkersTopology{MachineDeployments: []clusterv1.MachineDeploymentTopology{
			{Class: "workers", Name: "workers", Replicas: &workers},
		}},
	}
	return cluster
}

// WorkloadConfig returns an administrator's configuration of a Cluster's API server.
func WorkloadConfig(ctx context.Context, c client.Reader, cluster client.ObjectKey) (*rest.Config, error) {
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + "-kubeconfig"}, secret); err != nil {
		return nil, fmt.Errorf("getting the kubeconfig of Cluster %s: %w", cluster, err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of Cluster %s: %w", cluster, err)
	}
	config.QPS = -1
	return config, nil
}

// Workload returns an administrator's client of a Cluster's API server.
func Workload(ctx context.Context, c client.Reader, cluster client.ObjectKey) (client.Client, error) {
	config, err := WorkloadConfig(ctx, c, cluster)
	if err != nil {
		return nil, err
	}
	workload, err := client.New(config, client.Options{Scheme: stage.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("making a client of Cluster %s: %w", cluster, err)
	}
	return workload, nil
}

// Initialized reports whether Cluster API has initialized a Node.
func Initialized(node corev1.Node) bool {
	return !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == clusterv1.NodeUninitializedTaint.Key })
}
