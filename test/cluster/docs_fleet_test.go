// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"context"
	"path/filepath"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// The objects that a reader already has, with the names on the pages: MachineDeployment fleet/workers of a Cluster that is the management
// cluster itself, and the objects that Cluster API has created for it.
const (
	fleet        = "fleet"
	fleetCluster = "prod"
	fleetNode    = "workers-1"
)

// createFleet creates these objects.
func (w *walk) createFleet() {
	w.release.t.Helper()
	create := func(objects ...client.Object) {
		w.release.t.Helper()
		for _, object := range objects {
			w.Expect(shared.Create(w.ctx, object)).To(Succeed())
		}
	}
	owner := stage.Cluster(fleet, fleetCluster)
	md := stage.MachineDeployment(owner, "workers", stage.Declared{})
	kubeconfig, err := shared.PodKubeconfig()
	w.Expect(err).NotTo(HaveOccurred())
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet}}, owner, md, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fleet, Name: fleetCluster + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: fleetCluster},
		},
		Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": kubeconfig},
	})
	provisioned := owner.DeepCopy()
	provisioned.Status.Initialization.InfrastructureProvisioned = new(true)
	w.Expect(shared.Status().Patch(w.ctx, provisioned, client.MergeFrom(owner))).To(Succeed())
	ms := stage.MachineSet(md, "workers-x7k2p")
	create(ms)
	node := stage.Node(fleetNode)
	create(stage.Machine(ms, fleetNode), node)
	w.release.t.Cleanup(func() {
		// The context of the test has ended by then. The Heirlooms of other tests would treat this Cluster like any other.
		for _, object := range []client.Object{node, owner, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet}}} {
			w.Expect(shared.Delete(context.WithoutCancel(w.ctx), object)).To(Succeed())
		}
	})
}

// startCertManager runs cert-manager's controllers until the test ends.
func (w *walk) startCertManager() {
	w.release.t.Helper()
	crds, err := controlplane.CertManagerCRDs()
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(shared.InstallCRDs(w.ctx, crds)).To(Succeed())
	program, err := controlplane.Built(w.ctx, "cert-manager")
	w.Expect(err).NotTo(HaveOccurred())
	process, err := controlplane.StartProcess(w.ctx, program,
		[]string{"--kubeconfig=" + shared.Kubeconfig}, filepath.Join(w.release.t.TempDir(), "cert-manager.log"))
	w.Expect(err).NotTo(HaveOccurred())
	w.release.t.Cleanup(func() { w.Expect(process.Stop()).To(Succeed()) })
}

// expectArrived waits until Machine and Node have the declared entries.
func (w *walk) expectArrived(labels map[string]string, taints ...corev1.Taint) {
	w.release.t.Helper()
	machine, node := &clusterv1.Machine{}, &corev1.Node{}
	w.Eventually(func(g Gomega) {
		g.Expect(shared.Get(w.ctx, client.ObjectKey{Namespace: fleet, Name: fleetNode}, machine)).To(Succeed())
		g.Expect(shared.Get(w.ctx, client.ObjectKey{Name: fleetNode}, node)).To(Succeed())
		for key, value := range labels {
			g.Expect(machine.Labels).To(HaveKeyWithValue(key, value))
			g.Expect(node.Labels).To(HaveKeyWithValue(key, value))
		}
		g.Expect(node.Spec.Taints).To(ContainElements(taints))
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}

// expectImage checks that all Pods run from the image in the registry of the pages.
func (w *walk) expectImage() {
	w.release.t.Helper()
	w.settle()
	for _, pod := range w.pods() {
		w.Expect(pod.Spec.Containers[0].Image).To(Equal(registryHost + "/heirloom:dev"))
		w.Expect(pod.Status.ContainerStatuses).To(HaveEach(HaveField("ImageID", HavePrefix(registryHost+"/heirloom@sha256:"))))
	}
}
