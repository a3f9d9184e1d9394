// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// kubernetesVersion is what hollow kubelets say of themselves. Cluster API compares it with what was asked for.
const kubernetesVersion = "v1.36.3"

// world is a management cluster with Cluster API's own managers and one workload cluster whose Nodes are hollow kubelets;
// with Heirloom, or without.
type world struct {
	*stage.Stage
	*WithT
	t        *testing.T
	ctx      context.Context
	dir      string
	managers *clusterapi.Managers
	infra    *clusterapi.Infrastructure
	// audited are the audit logs of the management clusters that it has had.
	audited []string

	workload *stage.Workload
	cluster  *clusterv1.Cluster
	md       *clusterv1.MachineDeployment
	// lonely is how many Machines there are that are not the MachineDeployment's.
	lonely int32
	// ready expects that everything is as it was asked for.
	ready func(Gomega)
}

// newWorld makes a world with a Cluster that has an external control plane. Without Heirloom it has neither its webhooks nor
// its program.
func newWorld(t *testing.T, heirloom bool, options clusterapi.Options) *world {
	t.Helper()
	w := newEmptyWorld(t, heirloom, options)
	w.ready = w.deployed
	w.addCluster()
	return w
}

// newEmptyWorld makes a world without Clusters, with further arguments for Heirloom.
func newEmptyWorld(t *testing.T, heirloom bool, options clusterapi.Options, args ...string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "world")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	audited := filepath.Join(dir, "audit.log")
	s, err := stage.New(ctx, stage.Options{
		Program: binary(t, "heirloom"), Args: args, Dir: dir, WithoutWebhooks: !heirloom, WithoutProgram: !heirloom,
		ControlPlane: controlplane.Options{AuditLog: audited},
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	w := &world{Stage: s, WithT: NewWithT(t), t: t, ctx: ctx, dir: dir, audited: []string{audited}}
	t.Cleanup(func() { w.end(cancel) })
	options.Dir = dir
	w.managers, err = clusterapi.Start(ctx, s.ControlPlane, options)
	w.Expect(err).NotTo(HaveOccurred())
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}})
	return w
}

// addCluster creates a Cluster whose control plane is managed by somebody else.
func (w *world) addCluster() {
	w.t.Helper()
	w.create(provided("FakeCluster", "prod", map[string]any{}))
	w.create(provided("FakeMachineTemplate", "small", map[string]any{"template": map[string]any{"spec": map[string]any{"size": "small"}}}))
	controlPlane := provided("ModernControlPlane", "prod", map[string]any{"version": kubernetesVersion})
	controlPlane.SetAPIVersion("controlplane.cluster.x-k8s.io/v1beta2")
	w.create(controlPlane)
	w.cluster = stage.Cluster("fleet", "prod")
	w.cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "FakeCluster", Name: "prod",
	}
	w.cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "controlplane.cluster.x-k8s.io", Kind: "ModernControlPlane", Name: "prod",
	}
	w.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}
	w.create(w.cluster)
	var err error
	w.workload, err = w.StartWorkload(w.ctx, w.cluster, controlplane.Options{})
	w.Expect(err).NotTo(HaveOccurred())
	w.provide()
}

// provide starts the infrastructure provider.
func (w *world) provide() {
	w.t.Helper()
	w.infra = &clusterapi.Infrastructure{Workload: w.workload.ControlPlane, Dir: w.dir}
	w.Expect(w.infra.Start(w.ctx, w.AdminConfig())).To(Succeed())
}

func (w *world) end(cancel context.CancelFunc) {
	defer cancel()
	defer os.RemoveAll(w.dir)
	if w.t.Failed() {
		for _, name := range []string{"heirloom.log", "core.log", "kubeadm-bootstrap.log", "kubeadm-control-plane.log"} {
			if log, err := os.ReadFile(filepath.Join(w.dir, name)); err == nil {
				w.t.Logf("%s:\n%s", name, log)
			}
		}
	}
	if w.managers != nil {
		w.Expect(w.managers.Stop()).To(Succeed())
	}
	if w.infra != nil {
		w.Expect(w.infra.Stop()).To(Succeed())
	}
	if w.workload != nil {
		w.Expect(w.workload.Stop()).To(Succeed())
	}
	w.Expect(w.Stop()).To(Succeed())
}

func (w *world) create(object client.Object) {
	w.t.Helper()
	w.Expect(w.Client.Create(w.ctx, object)).To(Succeed())
}

// change changes the MachineDeployment.
func (w *world) change(how func(*clusterv1.MachineDeployment)) {
	w.t.Helper()
	w.Expect(w.Client.Get(w.ctx, client.ObjectKeyFromObject(w.md), w.md)).To(Succeed())
	before := w.md.DeepCopy()
	how(w.md)
	w.Expect(w.Client.Patch(w.ctx, w.md, client.MergeFrom(before))).To(Succeed())
}

// provided returns an object of a provider that does not exist.
func provided(kind, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	object.SetKind(kind)
	object.SetNamespace("fleet")
	object.SetName(name)
	object.SetLabels(map[string]string{clusterv1.ClusterNameLabel: "prod"})
	return object
}

// deploy creates a MachineDeployment of FakeMachines.
func (w *world) deploy(replicas int32, d stage.Declared) {
	w.t.Helper()
	w.md = stage.MachineDeployment(w.cluster, "workers", d)
	w.md.Spec.Replicas = ptr.To(replicas)
	w.md.Spec.Template.Spec.InfrastructureRef.Kind = "FakeMachineTemplate"
	w.md.Spec.Template.Spec.InfrastructureRef.Name = "small"
	w.md.Spec.Template.Spec.Version = kubernetesVersion
	w.create(w.md)
}
