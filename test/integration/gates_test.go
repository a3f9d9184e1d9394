// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// The Node of a workload cluster gets the taints of its start-up gates. A condition opens one gate; a ready Pod of a
// DaemonSet, a CSI driver and a resource together open the other, each once; without the declaration, the Node has no record of opened gates. An invalid gate is refused.
func TestStartupGates(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	const network = "net=calico:NoSchedule"
	name := s.own("gates")
	until := network + " until condition NetworkUnavailable=False, cni:NoExecute until daemonset kube-system/calico-node " +
		"and csinode ebs.csi.aws.com and allocatable nvidia.com/gpu within 1s"
	f := s.settleIn(name, name, stage.Declared{Annotations: map[string]string{taint.UntilAnnotation: until}})
	a := abroad{f, s.workload(f.cluster)}
	node := stage.Node(f.m.Name)
	s.Expect(a.Client.Create(s.ctx, node)).To(Succeed())
	has := func(taints string, closed ...string) {
		t.Helper()
		s.eventuallyNode(a, node, func(g Gomega) {
			g.Expect(taint.FormatList(node.Spec.Taints)).To(Equal(taints + ",node.kubernetes.io/not-ready:NoSchedule")) // from the API server itself
			g.Expect(inherit.RecordOf(inherit.OfNode(node)).Gates).To(Equal(closed))
		})
	}
	has("cni:NoExecute,"+network, "cni:NoExecute", "net:NoSchedule")

	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse})
	s.Expect(a.Client.Status().Update(s.ctx, node)).To(Succeed())
	has("cni:NoExecute", "cni:NoExecute")
	s.expectEvent("StartupGateOpened", "Machine", f.m.Name, ContainSubstring("removed net:NoSchedule"))
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "net", Value: "calico", Effect: corev1.TaintEffectNoSchedule})
	s.Expect(a.Client.Update(s.ctx, node)).To(Succeed())

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: node.Name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "calico-node", UID: "u", Controller: new(true)},
		}},
		Spec: corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "calico", Image: "calico"}}},
	}
	s.Expect(a.Client.Create(s.ctx, pod)).To(Succeed())
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	s.Expect(a.Client.Status().Update(s.ctx, pod)).To(Succeed())
	driver := storagev1.CSINodeDriver{Name: "ebs.csi.aws.com", NodeID: node.Name}
	s.Expect(a.Client.Create(s.ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{driver}}})).To(Succeed())
	s.expectEvent("StartupGateStuck", "MachineDeployment", f.md.Name, ContainSubstring("it waits for allocatable nvidia.com/gpu"))
	has("cni:NoExecute,"+network, "cni:NoExecute")
	node.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	s.Expect(a.Client.Status().Update(s.ctx, node)).To(Succeed())
	has(network)

	s.update(f.md, func() { f.md.Spec.Template.Annotations = nil })
	has(network)

	f.md.Spec.Template.Annotations = map[string]string{taint.UntilAnnotation: "net:NoSchedule until lunch"}
	s.Expect(s.Client.Update(s.ctx, f.md)).To(MatchError(ContainSubstring("spec.template.metadata.annotations[taints.heirloom.dev/until]")))
}
