// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"slices"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// prepareManaged creates the class of a Cluster that is to come, and the Secrets that the kubeadm providers expect of an
// operator who has a kubeconfig and an etcd of his own.
func (w *world) prepareManaged(typed bool) {
	w.t.Helper()
	// Of Cluster API's own type, the control-plane manager would renew it, with a CA that this API server does not have.
	w.addKubeconfig(managed, corev1.SecretTypeOpaque)
	dir := w.t.TempDir()
	ca, err := controlplane.ServingCertificate(dir, "etcd.example.com")
	w.Expect(err).NotTo(HaveOccurred())
	w.addSecret(managed, "etcd", clusterv1.ClusterSecretType, map[string][]byte{corev1.TLSCertKey: ca})
	w.addSecret(managed, "apiserver-etcd-client", clusterv1.ClusterSecretType, map[string][]byte{
		corev1.TLSCertKey:       []byte(w.read(filepath.Join(dir, corev1.TLSCertKey))),
		corev1.TLSPrivateKeyKey: []byte(w.read(filepath.Join(dir, corev1.TLSPrivateKeyKey))),
	})
	w.addClass(typed)
}

// managedNodes are the Nodes that Cluster API has found to be the managed Cluster's.
func (w *world) managedNodes() []unstructured.Unstructured {
	return slices.DeleteFunc(w.list(w.workload.Client, nodeKind), func(node unstructured.Unstructured) bool {
		return node.GetAnnotations()[clusterv1.ClusterNameAnnotation] != managed
	})
}

// built expects that the Cluster is what its topology asks for.
func (w *world) built(g Gomega) {
	g.Expect(w.Client.Get(w.ctx, client.ObjectKeyFromObject(w.managed), w.managed)).To(Succeed())
	class := &clusterv1.ClusterClass{}
	g.Expect(w.Client.Get(w.ctx, client.ObjectKey{Namespace: "fleet", Name: "class"}, class)).To(Succeed())
	g.Expect(class.Status.ObservedGeneration).To(Equal(class.Generation))
	reconciled := meta.FindStatusCondition(w.managed.Status.Conditions, clusterv1.ClusterTopologyReconciledCondition)
	g.Expect(reconciled).To(HaveField("Status", metav1.ConditionTrue), "%v", reconciled)
	g.Expect(reconciled.ObservedGeneration).To(Equal(w.managed.Generation))

	leaders, machines, workers := w.wanted()
	g.Expect(w.managed.Status.ControlPlane).NotTo(BeNil())
	g.Expect(w.managed.Status.Workers).NotTo(BeNil())
	counts := []*int32{w.managed.Status.ControlPlane.Replicas, w.managed.Status.ControlPlane.ReadyReplicas, w.managed.Status.ControlPlane.UpToDateReplicas}
	g.Expect(counts).To(HaveEach(HaveValue(Equal(leaders))), "%v", w.managed.Status.Conditions)
	g.Expect(w.managed.Status.Workers.Replicas).To(HaveValue(Equal(workers)), "%v", w.managed.Status.Conditions)
	// Not by status.workers.readyReplicas: a MachinePool may learn late that its Machines are ready.
	all := &clusterv1.MachineList{}
	g.Expect(w.Client.List(w.ctx, all, client.MatchingLabels{clusterv1.ClusterNameLabel: managed})).To(Succeed())
	g.Expect(all.Items).To(HaveLen(int(machines)))
	for _, machine := range all.Items {
		g.Expect(meta.IsStatusConditionTrue(machine.Status.Conditions, clusterv1.MachineReadyCondition)).To(BeTrue(), "%v", machine.Status.Conditions)
	}
	nodes := w.managedNodes()
	g.Expect(nodes).To(HaveLen(int(leaders + workers)))
	for _, node := range nodes {
		g.Expect(text(node.Object["status"])).To(MatchRegexp(`"status":"True","type":"Ready"`), node.GetName())
	}
}

// wanted returns how many Machines of the control plane, Machines at all and workers the topology asks for.
func (w *world) wanted() (leaders, machines, workers int32) {
	topology := w.managed.Spec.Topology
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
	w.Expect(w.Client.Get(w.ctx, client.ObjectKeyFromObject(w.managed), w.managed)).To(Succeed())
	before := w.managed.DeepCopy()
	how(&w.managed.Spec.Topology)
	w.Expect(w.Client.Patch(w.ctx, w.managed, client.MergeFrom(before))).To(Succeed())
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
