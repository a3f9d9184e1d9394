// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

const (
	// kubernetesVersion is what hollow kubelets say of themselves. Cluster API compares it with what was asked for.
	kubernetesVersion = "v1.36.3"
	// plain is a Cluster whose control plane is managed by somebody else, managed is one with a topology.
	plain, managed = "prod", "managed"
)

// world is a management cluster with Cluster API's own managers and one workload cluster whose Nodes are hollow kubelets;
// with Heirloom, or without. All Clusters in it lead to the one workload cluster, each with Nodes of its own.
type world struct {
	*stage.Stage
	*WithT
	t *testing.T
	// whole is the test for as long as the world is there; t may be a part of it.
	whole    *testing.T
	ctx      context.Context
	dir      string
	managers *clusterapi.Managers
	infra    *clusterapi.Infrastructure
	// audits are the audit logs of the management clusters that it has had.
	audits []*auditLog
	// watched tells when something was written last.
	watched *watched

	workload *stage.Workload
	cluster  *clusterv1.Cluster
	// md is the MachineDeployment of the plain Cluster, or nil while there is none.
	md *clusterv1.MachineDeployment
	// lonely is how many Machines of the plain Cluster there are that are not the MachineDeployment's.
	lonely int32
	// managed is the Cluster with a topology, or nil while there is none.
	managed *clusterv1.Cluster
}

// setting says what a world begins with.
type setting struct {
	clusterapi.Options
	// heirloom says whether the program and its webhooks are there from the beginning.
	heirloom bool
	// args are further arguments of the program.
	args []string
}

// newWorld makes a world with a plain Cluster. Without Heirloom it has neither its webhooks nor its program.
func newWorld(t *testing.T, s setting) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "world")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(t.Context(), 45*time.Minute)
	w := &world{whole: t, ctx: ctx, dir: dir}
	w.in(t)
	t.Cleanup(func() { w.end(cancel) })
	var starts errgroup.Group
	starts.Go(func() (err error) {
		w.Stage, w.managers, err = w.startManagement(dir, s)
		return err
	})
	starts.Go(w.startWorkload)
	w.Expect(starts.Wait()).To(Succeed())
	w.audits = []*auditLog{{path: auditLogIn(dir)}}
	w.watch()
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}})
	w.provide()
	w.addCluster()
	return w
}

// in makes a test the one that fails with what happens in the world.
func (w *world) in(t *testing.T) {
	w.t, w.WithT = t, NewWithT(t)
	w.SetDefaultEventuallyTimeout(5 * patience)
	w.SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
}

// starting are the API servers that start at this moment: more than two on two cores would keep each other from it.
var starting = make(chan struct{}, 2)

// startManagement starts a management cluster with Cluster API's managers.
func (w *world) startManagement(dir string, s setting) (*stage.Stage, *clusterapi.Managers, error) {
	program, err := controlplane.Built(w.ctx, "heirloom")
	if err != nil {
		return nil, nil, err
	}
	starting <- struct{}{}
	management, err := stage.New(w.ctx, stage.Options{
		Program: program, Args: s.args, Dir: dir, WithoutWebhooks: !s.heirloom, WithoutProgram: !s.heirloom,
		ControlPlane: controlplane.Options{AuditLog: auditLogIn(dir)},
	})
	<-starting
	if err != nil {
		return nil, nil, err
	}
	s.Dir = dir
	managers, err := clusterapi.Start(w.ctx, management.ControlPlane, s.Options)
	return management, managers, err
}

func auditLogIn(dir string) string { return filepath.Join(dir, "audit.log") }

// startWorkload starts the workload cluster.
func (w *world) startWorkload() error {
	starting <- struct{}{}
	cp, err := controlplane.Start(w.ctx, controlplane.ForWorkload(controlplane.Options{}))
	<-starting
	if err != nil {
		return err
	}
	w.workload = &stage.Workload{ControlPlane: cp}
	w.workload.Client, err = client.New(cp.AdminConfig(), client.Options{Scheme: stage.Scheme()})
	return err
}

// addCluster creates the plain Cluster.
func (w *world) addCluster() {
	w.t.Helper()
	w.addKubeconfig(plain, clusterv1.ClusterSecretType)
	w.create(provided("FakeCluster", plain, map[string]any{}))
	w.create(provided("FakeMachineTemplate", "small", map[string]any{"template": map[string]any{"spec": map[string]any{"size": "small"}}}))
	controlPlane := provided("ModernControlPlane", plain, map[string]any{"version": kubernetesVersion})
	controlPlane.SetAPIVersion("controlplane.cluster.x-k8s.io/v1beta2")
	w.create(controlPlane)
	w.cluster = stage.Cluster("fleet", plain)
	w.cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "FakeCluster", Name: plain,
	}
	w.cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "controlplane.cluster.x-k8s.io", Kind: "ModernControlPlane", Name: plain,
	}
	w.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}
	w.create(w.cluster)
}

// addKubeconfig creates the Secret that leads to the workload cluster.
func (w *world) addKubeconfig(cluster string, kind corev1.SecretType) {
	w.t.Helper()
	kubeconfig, err := w.workload.Kubeconfig("cluster-api", "system:masters")
	w.Expect(err).NotTo(HaveOccurred())
	w.addSecret(cluster, "kubeconfig", kind, map[string][]byte{"value": kubeconfig})
}

func (w *world) addSecret(cluster, purpose string, kind corev1.SecretType, data map[string][]byte) {
	w.t.Helper()
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "fleet", Name: cluster + "-" + purpose, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster},
		},
		Type: kind, Data: data,
	})
}

// provide starts the infrastructure provider.
func (w *world) provide() {
	w.t.Helper()
	w.infra = &clusterapi.Infrastructure{Workload: w.workload.ControlPlane, Dir: w.dir}
	w.Expect(w.infra.Start(w.ctx, w.AdminConfig())).To(Succeed())
}

func (w *world) end(cancel context.CancelFunc) {
	defer os.RemoveAll(w.dir)
	defer cancel()
	w.in(w.whole)
	if w.t.Failed() {
		for _, name := range []string{"heirloom.log", "core.log", "kubeadm-bootstrap.log", "kubeadm-control-plane.log"} {
			if log, err := os.ReadFile(filepath.Join(w.dir, name)); err == nil {
				w.t.Logf("%s:\n%s", name, log)
			}
		}
	}
	if w.watched != nil {
		w.watched.stop()
	}
	// Nothing is left running because something else has not ended well.
	var first, last errgroup.Group
	if w.managers != nil {
		first.Go(w.managers.Stop)
	}
	if w.infra != nil {
		first.Go(w.infra.Stop)
	}
	err := first.Wait()
	if w.workload != nil {
		last.Go(w.workload.Stop)
	}
	if w.Stage != nil {
		last.Go(w.Stop)
	}
	w.Expect(errors.Join(err, last.Wait())).To(Succeed())
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
	object.SetLabels(map[string]string{clusterv1.ClusterNameLabel: plain})
	return object
}

// deploy creates a MachineDeployment of two FakeMachines.
func (w *world) deploy(d stage.Declared) {
	w.t.Helper()
	md := stage.MachineDeployment(w.cluster, "workers", d)
	md.Spec.Replicas = ptr.To(int32(2))
	md.Spec.Template.Spec.InfrastructureRef.Kind = "FakeMachineTemplate"
	md.Spec.Template.Spec.InfrastructureRef.Name = "small"
	md.Spec.Template.Spec.Version = kubernetesVersion
	// One comes and one goes at a time, without waiting for each other.
	md.Spec.Rollout.Strategy.Type = clusterv1.RollingUpdateMachineDeploymentStrategyType
	md.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(1))
	md.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1))
	w.create(md)
	w.md = md
}

// undeploy deletes the MachineDeployment with all that it has.
func (w *world) undeploy() {
	w.t.Helper()
	w.Expect(w.Client.Delete(w.ctx, w.md)).To(Succeed())
	w.expectGone(w.md)
	w.md = nil
}
