// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// Rule 4: what a control plane declares for its Machines reaches them, on create and by the loop, whatever provider's
// kind it is: Heirloom knows none of them by name.
func TestMachinesInheritFromTheirControlPlane(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	f := s.settle(s.own("cp"), stage.Declared{})
	cp := kubeadmControlPlane(f.m.Namespace)
	s.create(cp)
	machine := stage.Machine(f.ms, f.m.Name+"-machine")
	machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
	machine.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cp, cp.GroupVersionKind())}
	s.create(machine)
	s.Expect(machine.Labels).To(HaveKeyWithValue("team", "platform"), "in the write that creates it")
	s.Expect(machine.Annotations).To(HaveKeyWithValue("note", "x"))
	s.Expect(machine.Spec.Taints).To(ContainElement(HaveField("Key", "node-role.kubernetes.io/control-plane")))
	s.Expect(machine.Spec.Deletion.NodeDrainTimeoutSeconds).To(HaveValue(BeEquivalentTo(30)))

	s.get(cp)
	before := cp.DeepCopy()
	s.Expect(unstructured.SetNestedStringMap(cp.Object, map[string]string{"tier": "gold"}, "spec", "machineTemplate", "metadata", "labels")).To(Succeed())
	s.Expect(s.Client.Patch(s.ctx, cp, client.MergeFrom(before))).To(Succeed())
	s.get(cp)
	s.Expect(cp.Object["spec"]).To(HaveKey("machineTemplate"))
	s.eventually(machine, func(g Gomega) { g.Expect(machine.Labels).To(HaveKeyWithValue("tier", "gold")) })

	before = cp.DeepCopy()
	unstructured.RemoveNestedField(cp.Object, "spec", "machineTemplate", "metadata", "labels", "team")
	s.Expect(s.Client.Patch(s.ctx, cp, client.MergeFrom(before))).To(Succeed())
	s.eventually(machine, func(g Gomega) { g.Expect(machine.Labels).NotTo(HaveKey("team")) })
}

func kubeadmControlPlane(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
		"metadata": map[string]any{"namespace": name, "name": name, "labels": map[string]any{clusterv1.ClusterNameLabel: name}},
		"spec": map[string]any{
			"replicas": int64(1), "version": "v1.36.0",
			"machineTemplate": map[string]any{
				"metadata": map[string]any{
					"labels": map[string]any{"team": "platform"}, "annotations": map[string]any{"note": "x"},
				},
				"spec": map[string]any{
					"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "FakeMachineTemplate", "name": "fake"},
					"deletion":          map[string]any{"nodeDrainTimeoutSeconds": int64(30)},
					"taints": []any{map[string]any{
						"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule", "propagation": "Always",
					}},
				},
			},
		},
	}}
}

// Rule 9: a MachinePool's template reaches its Machines, and the Nodes themselves where the provider has no Machines.
func TestMachinePools(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	f := s.settle(s.own("pool"), stage.Declared{})
	nodeName := f.m.Name + "-node"
	template := f.md.Spec.Template
	template.Labels = map[string]string{"team": "pool", "node.cluster.x-k8s.io/pool": "a", "node-role.kubernetes.io/worker": ""}
	template.Annotations = map[string]string{taint.AlwaysAnnotation: "gpu=true:NoSchedule"}
	pool := &clusterv1.MachinePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.m.Namespace, Name: f.m.Name},
		Spec: clusterv1.MachinePoolSpec{
			ClusterName: f.cluster.Name, Template: template, ProviderIDList: []string{stage.ProviderID(nodeName)},
		},
	}
	s.create(pool)

	machine := stage.Machine(f.ms, f.m.Name+"-machine")
	machine.OwnerReferences = []metav1.OwnerReference{stage.ControlledBy(pool, "MachinePool")}
	s.create(machine)
	s.Expect(machine.Labels).To(HaveKeyWithValue("team", "pool"))
	s.Expect(machine.Annotations).To(HaveKeyWithValue(taint.AlwaysAnnotation, "gpu=true:NoSchedule"))

	node := stage.Node(nodeName)
	s.admit(s.kubelet(nodeName), node)
	s.Expect(node.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/pool", "a"))
	s.Expect(taint.FormatList(node.Spec.Taints)).To(ContainSubstring("gpu=true:NoSchedule"))
	s.eventually(node, func(g Gomega) { g.Expect(node.Labels).To(HaveKey("node-role.kubernetes.io/worker")) })

	s.get(pool)
	s.update(pool, func() {
		delete(pool.Spec.Template.Labels, "node.cluster.x-k8s.io/pool")
		pool.Spec.Template.Annotations = nil
	})
	s.eventually(node, func(g Gomega) {
		g.Expect(node.Labels).NotTo(HaveKey("node.cluster.x-k8s.io/pool"))
		g.Expect(taint.FormatList(node.Spec.Taints)).NotTo(ContainSubstring("gpu"))
	})
}

// An owner that cannot be found takes nothing away: neither one that is gone, nor none at all after a restore.
func TestLostOwnersTakeNothingAway(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	f := s.settle(s.own("lost"), declared())
	reference := f.m.OwnerReferences
	s.update(f.m, func() { f.m.OwnerReferences = nil })
	s.update(f.m, func() { f.m.Labels[touched] = "1" })
	s.Expect(f.m.Labels).To(HaveKeyWithValue("team", "ml"))
	s.Expect(f.m.Spec.Taints).To(ContainElement(HaveField("Key", "gpu")))

	s.update(f.m, func() {
		f.m.OwnerReferences = []metav1.OwnerReference{reference[0]}
		f.m.OwnerReferences[0].UID = "00000000-0000-0000-0000-000000000000"
	})
	s.update(f.m, func() { f.m.Labels[touched] = "2" })
	s.Expect(f.m.Labels).To(HaveKeyWithValue("team", "ml"))
	s.Expect(f.m.Annotations).To(HaveKeyWithValue("note", "for humans"))
}
