// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// Every stored version of a real kubelet's Node has the taints that its Machine declares, from the first version on, whoever removes them.
func TestNoNodeVersionLacksItsTaints(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	name := s.own("gpu")
	s.settle(name, declared())
	recorder, err := controlplane.RecordVersions(s.ctx, s.AdminConfig(), corev1.SchemeGroupVersion.WithResource("nodes"))
	s.Expect(err).NotTo(HaveOccurred())

	kubelet := s.startKubelet(controlplane.KubeletOptions{Name: name})
	_, err = kubelet.WaitRegistered(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.eventually(node, func(g Gomega) {
		g.Expect(node.Labels).To(HaveKey("node-role.kubernetes.io/worker"), "the loop adds restricted labels")
		g.Expect(taint.Find(node.Spec.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))).To(Equal(-1))
		g.Expect(node.Annotations).NotTo(HaveKey(inherit.UninitializedAnnotation))
		g.Expect(ready(node)).To(BeTrue())
	})

	for _, key := range []string{"gpu", "annotated"} {
		s.Expect(s.byKubectl("taint", "node", name, key+":NoSchedule-")).To(And(ContainSubstring("was kept"), ContainSubstring("Machine "+stage.Home+"/"+name+";"), ContainSubstring("edit MachineDeployment "+stage.Home+"/"+name+" ")))
	}
	s.byKubectl("taint", "node", name, "warming:NoSchedule-")
	s.byKubectl("label", "node", name, "mine=yes")
	s.get(node)
	s.Expect(taint.Find(node.Spec.Taints, taint.ID{Key: "warming", Effect: corev1.TaintEffectNoSchedule})).To(Equal(-1), "Initialize stays away")

	s.Expect(kubelet.Stop()).To(Succeed())
	s.Eventually(func() bool { return seen(recorder, node.ResourceVersion) }).WithTimeout(patience).Should(BeTrue())
	s.Expect(recorder.Stop()).To(Succeed())
	expectTaintsInEveryVersion(s, recorder.Versions("", name))
}

func seen(recorder *controlplane.Recorder, resourceVersion string) bool {
	for _, version := range recorder.All() {
		if version.Object.GetResourceVersion() == resourceVersion {
			return true
		}
	}
	return false
}

func expectTaintsInEveryVersion(s *scene, versions []controlplane.Version) {
	s.t.Helper()
	s.Expect(len(versions)).To(BeNumerically(">", 2))
	for i, version := range versions {
		var node corev1.Node
		s.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(version.Object.Object, &node)).To(Succeed())
		taints := taint.FormatList(node.Spec.Taints)
		s.Expect(taints).To(And(ContainSubstring("gpu=true:NoSchedule"), ContainSubstring("annotated=yes:NoSchedule")), "version %d", i)
		if i == 0 {
			s.Expect(taints).To(And(ContainSubstring("warming=up:NoSchedule"), ContainSubstring("booting=yes:PreferNoSchedule")))
		}
	}
}
