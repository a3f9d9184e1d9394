// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// newManagedWorld makes a world for a Cluster with a managed topology and a control plane of kubeadm's, before it is created.
func newManagedWorld(t *testing.T, heirloom bool, options clusterapi.Options) *world {
	t.Helper()
	// So much runs here that two cores may take longer to renew a lease than it lasts otherwise.
	w := newEmptyWorld(t, heirloom, options, "--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=45s")
	w.ready = w.built
	w.addWorkload()
	w.provide()
	w.addClass(options.TaintPropagation)
	return w
}

// addWorkload starts the workload cluster of a Cluster that is to come, and creates the Secrets that the kubeadm providers
// expect of an operator who has a kubeconfig and an etcd of his own.
func (w *world) addWorkload() {
	w.t.Helper()
	cp, err := controlplane.Start(w.ctx, controlplane.Options{})
	w.Expect(err).NotTo(HaveOccurred())
	w.workload = &stage.Workload{ControlPlane: cp}
	w.workload.Client, err = client.New(cp.AdminConfig(), client.Options{Scheme: stage.Scheme()})
	w.Expect(err).NotTo(HaveOccurred())
	kubeconfig, err := cp.Kubeconfig("cluster-api", "system:masters")
	w.Expect(err).NotTo(HaveOccurred())
	// Of Cluster API's own type, the control-plane manager would renew it, with a CA that this API server does not have.
	w.addSecret("kubeconfig", corev1.SecretTypeOpaque, map[string][]byte{"value": kubeconfig})
	dir := w.t.TempDir()
	ca, err := controlplane.ServingCertificate(dir, "etcd.example.com")
	w.Expect(err).NotTo(HaveOccurred())
	w.addSecret("etcd", clusterv1.ClusterSecretType, map[string][]byte{corev1.TLSCertKey: ca})
	w.addSecret("apiserver-etcd-client", clusterv1.ClusterSecretType, map[string][]byte{
		corev1.TLSCertKey:       []byte(w.read(filepath.Join(dir, corev1.TLSCertKey))),
		corev1.TLSPrivateKeyKey: []byte(w.read(filepath.Join(dir, corev1.TLSPrivateKeyKey))),
	})
}

func (w *world) addSecret(purpose string, kind corev1.SecretType, data map[string][]byte) {
	w.t.Helper()
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "prod-" + purpose, Labels: map[string]string{clusterv1.ClusterNameLabel: "prod"}},
		Type:       kind, Data: data,
	})
}

// built expects that the Cluster is what its topology asks for.
func (w *world) built(g Gomega) {
	g.Expect(w.Client.Get(w.ctx, client.ObjectKeyFromObject(w.cluster), w.cluster)).To(Succeed())
	class := &clusterv1.ClusterClass{}
	g.Expect(w.Client.Get(w.ctx, client.ObjectKey{Namespace: "fleet", Name: "class"}, class)).To(Succeed())
	g.Expect(class.Status.ObservedGeneration).To(Equal(class.Generation))
	reconciled := meta.FindStatusCondition(w.cluster.Status.Conditions, clusterv1.ClusterTopologyReconciledCondition)
	g.Expect(reconciled).To(HaveField("Status", metav1.ConditionTrue), "%v", reconciled)
	g.Expect(reconciled.ObservedGeneration).To(Equal(w.cluster.Generation))

	leaders, machines, workers := w.wanted()
	g.Expect(w.cluster.Status.ControlPlane).NotTo(BeNil())
	g.Expect(w.cluster.Status.Workers).NotTo(BeNil())
	counts := []*int32{w.cluster.Status.ControlPlane.Replicas, w.cluster.Status.ControlPlane.ReadyReplicas, w.cluster.Status.ControlPlane.UpToDateReplicas}
	g.Expect(counts).To(HaveEach(HaveValue(Equal(leaders))), "%v", w.cluster.Status.Conditions)
	g.Expect(w.cluster.Status.Workers.Replicas).To(HaveValue(Equal(workers)), "%v", w.cluster.Status.Conditions)
	// Not by status.workers.readyReplicas: a MachinePool may learn late that its Machines are ready.
	all := &clusterv1.MachineList{}
	g.Expect(w.Client.List(w.ctx, all)).To(Succeed())
	g.Expect(all.Items).To(HaveLen(int(machines)))
	for _, machine := range all.Items {
		g.Expect(meta.IsStatusConditionTrue(machine.Status.Conditions, clusterv1.MachineReadyCondition)).To(BeTrue(), "%v", machine.Status.Conditions)
	}
	nodes := &corev1.NodeList{}
	g.Expect(w.workload.Client.List(w.ctx, nodes)).To(Succeed())
	g.Expect(nodes.Items).To(HaveLen(int(leaders + workers)))
	for _, node := range nodes.Items {
		g.Expect(node.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
	}
}

// wanted returns how many Machines of the control plane, Machines at all and workers the topology asks for.
func (w *world) wanted() (leaders, machines, workers int32) {
	topology := w.cluster.Spec.Topology
	leaders = ptr.Deref(topology.ControlPlane.Replicas, 0)
	machines = leaders
	for _, md := range topology.Workers.MachineDeployments {
		workers += ptr.Deref(md.Replicas, 0)
		machines += ptr.Deref(md.Replicas, 0)
	}
	for _, mp := range topology.Workers.MachinePools {
		workers += ptr.Deref(mp.Replicas, 0)
		if mp.Class != "bare" {
			machines += ptr.Deref(mp.Replicas, 0)
		}
	}
	return leaders, machines, workers
}

// changeCluster changes the Cluster and its topology.
func (w *world) changeCluster(how func(*clusterv1.Topology)) {
	w.t.Helper()
	w.Expect(w.Client.Get(w.ctx, client.ObjectKeyFromObject(w.cluster), w.cluster)).To(Succeed())
	before := w.cluster.DeepCopy()
	how(&w.cluster.Spec.Topology)
	w.Expect(w.Client.Patch(w.ctx, w.cluster, client.MergeFrom(before))).To(Succeed())
}

// changeClass changes the ClusterClass.
func (w *world) changeClass(how func(*clusterv1.ClusterClassSpec)) {
	w.t.Helper()
	class := &clusterv1.ClusterClass{}
	w.Expect(w.Client.Get(w.ctx, client.ObjectKey{Namespace: "fleet", Name: "class"}, class)).To(Succeed())
	before := class.DeepCopy()
	how(&class.Spec)
	w.Expect(w.Client.Patch(w.ctx, class, client.MergeFrom(before))).To(Succeed())
}
