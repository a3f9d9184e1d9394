// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// testTheOldestClusterAPI is about both paths together. Cluster API v1.8 serves v1beta1 only and has no taints. The same rules hold
// there, in-place fields are where v1beta1 has them, and taints declared by annotation reach the Node.
func testTheOldestClusterAPI(t *testing.T, on *controlplane.Lent) {
	s := sceneOn(t, on, stage.Options{Args: []string{"--management-cluster=old/c"}})
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "old"}})
	s.create(old("Cluster", "c", nil, map[string]any{}))
	md := old("MachineDeployment", "md", nil, map[string]any{
		"clusterName": "c", "replicas": int64(1), "minReadySeconds": int64(7),
		"selector": map[string]any{"matchLabels": map[string]any{"md": "md"}},
		"template": map[string]any{
			"metadata": map[string]any{
				"labels":      map[string]any{"md": "md", "team": "ml", "node.cluster.x-k8s.io/pool": "gpu"},
				"annotations": map[string]any{taint.AlwaysAnnotation: "gpu=true:NoSchedule"},
			},
			"spec": oldMachineSpec(map[string]any{"nodeDrainTimeout": "1m30s"}),
		},
	})
	s.create(md)
	ms := old("MachineSet", "ms", md, map[string]any{
		"clusterName": "c", "replicas": int64(1),
		"selector": map[string]any{"matchLabels": map[string]any{"md": "md"}},
		"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"md": "md"}}, "spec": oldMachineSpec(nil)},
	})
	s.create(ms)
	s.Expect(at(ms, "spec", "template", "metadata", "labels", "team")).To(Equal("ml"))
	s.Expect(at(ms, "spec", "template", "spec", "nodeDrainTimeout")).To(Equal("1m30s"))
	s.Expect(at(ms, "spec", "minReadySeconds")).To(Equal(int64(7)))

	m := old("Machine", "m", ms, oldMachineSpec(map[string]any{"providerID": stage.ProviderID("old")}))
	s.create(m)
	s.Expect(m.GetLabels()).To(HaveKeyWithValue("team", "ml"))
	s.Expect(at(m, "spec", "nodeDrainTimeout")).To(Equal("1m30s"))
	s.Expect(at(m, "spec", "taints")).To(BeNil(), "there is no such field")
	s.Expect(ours(m)).NotTo(ContainSubstring("taints\":"))

	node := stage.Node("old")
	s.Expect(s.kubelet("old").Create(s.ctx, node)).To(Succeed())
	s.Expect(node.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/pool", "gpu"))
	s.Expect(taint.FormatList(node.Spec.Taints)).To(ContainSubstring("gpu=true:NoSchedule"))

	s.testOldWorkloadCluster()

	before := md.DeepCopy()
	unstructured.RemoveNestedField(md.Object, "spec", "template", "spec", "nodeDrainTimeout")
	unstructured.RemoveNestedField(md.Object, "spec", "template", "metadata", "annotations")
	unstructured.RemoveNestedField(md.Object, "spec", "template", "metadata", "labels", "team")
	s.Expect(s.Client.Patch(s.ctx, md, client.MergeFrom(before))).To(Succeed())
	s.eventually(m, func(g Gomega) {
		g.Expect(m.GetLabels()).NotTo(HaveKey("team"))
		g.Expect(at(m, "spec", "nodeDrainTimeout")).To(BeNil())
	})
	s.eventually(node, func(g Gomega) {
		g.Expect(taint.FormatList(node.Spec.Taints)).NotTo(ContainSubstring("gpu"))
	})
}

// testOldWorkloadCluster is about a workload cluster whose Cluster has what an infrastructure provider writes into its status. Failure
// domains are a map in v1beta1, and a list in v1beta2.
func (s *scene) testOldWorkloadCluster() {
	s.t.Helper()
	far := old("Cluster", "far", nil, map[string]any{})
	s.create(far)
	before := far.DeepCopy()
	far.Object["status"] = map[string]any{
		"phase": "Provisioned", "infrastructureReady": true, "controlPlaneReady": true, "observedGeneration": int64(1),
		"failureDomains": map[string]any{"eu-1a": map[string]any{"controlPlane": true, "attributes": map[string]any{"zone": "a"}}},
		"conditions":     []any{map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-22T08:00:00Z"}},
	}
	s.Expect(s.Client.Status().Patch(s.ctx, far, client.MergeFrom(before))).To(Succeed())
	w, err := s.GiveKubeconfig(s.ctx, client.ObjectKeyFromObject(far), lend(s.t, controlplane.ForWorkload(controlplane.Options{})).ControlPlane)
	s.Expect(err).NotTo(HaveOccurred())
	s.t.Cleanup(w.Door.Shut)
	m := old("Machine", "far", nil, oldMachineSpec(map[string]any{"clusterName": "far", "providerID": stage.ProviderID("far")}))
	m.SetLabels(map[string]string{clusterv1.ClusterNameLabel: "far", "node.cluster.x-k8s.io/pool": "far"})
	s.create(m)
	node := stage.Node("far")
	s.Expect(w.Client.Create(s.ctx, node)).To(Succeed())
	s.Eventually(func(g Gomega) {
		g.Expect(w.Client.Get(s.ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		g.Expect(node.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/pool", "far"))
	}).WithTimeout(2 * patience).WithPolling(polling).Should(Succeed())
}

// old returns an object of v1beta1.
func old(kind, name string, owner *unstructured.Unstructured, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion("cluster.x-k8s.io/v1beta1")
	u.SetKind(kind)
	u.SetNamespace("old")
	u.SetName(name)
	u.SetLabels(map[string]string{clusterv1.ClusterNameLabel: "c", "md": "md"})
	if owner != nil {
		u.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
	}
	return u
}

func oldMachineSpec(with map[string]any) map[string]any {
	spec := map[string]any{
		"clusterName": "c", "bootstrap": map[string]any{"dataSecretName": "x"},
		"infrastructureRef": map[string]any{"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "FakeMachine", "name": "fake"},
	}
	for key, value := range with {
		spec[key] = value
	}
	return spec
}

func at(u *unstructured.Unstructured, path ...string) any {
	value, _, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil {
		return err
	}
	return value
}
