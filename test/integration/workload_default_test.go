// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// Without any flag or label, the first version of a Node in a workload cluster has the inherited entries that its kubelet may
// set, and a taint keeps Pods away until the loop adds the other entries. If the workload cluster is too old for a policy, the loop adds
// all of the entries.
func TestNodesAreAdmittedByDefault(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	a := s.abroad(s.own("served"))
	complete := func(g Gomega, node *corev1.Node) {
		g.Expect(taint.FormatList(node.Spec.Taints)).To(And(ContainSubstring("gpu=true:NoSchedule"), ContainSubstring("annotated=yes:NoSchedule"),
			ContainSubstring("node.cluster.x-k8s.io/uninitialized:NoSchedule")))
		g.Expect(node.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/pool", "gpu"))
		g.Expect(node.Annotations).To(HaveKeyWithValue("node.cluster.x-k8s.io/note", "for nodes"))
	}
	names := []string{a.m.Name}
	for i := range 9 {
		m := stage.Machine(a.ms, fmt.Sprint(a.m.Name, "-", i))
		s.create(m)
		names = append(names, m.Name)
	}
	if !a.ServesAdmissionPolicies() {
		s.expectTheLoopAlone(a, names)
		return
	}
	for _, name := range names { // until the API server has the policy and all parameters
		kubelet := s.kubeletOf(a.ControlPlane, name)
		s.Eventually(func(g Gomega) {
			node := stage.Node(name)
			g.Expect(kubelet.Create(s.ctx, node, client.DryRunAll)).To(Succeed())
			complete(g, node)
		}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	}

	for _, name := range names {
		node := stage.Node(name)
		s.Expect(s.kubeletOf(a.ControlPlane, name).Create(s.ctx, node)).To(Succeed())
		complete(s, node)
		s.expectInherited(a, node)
	}
	s.expectEvent("WorkloadAdmissionRegistered", "Cluster", a.cluster.Name, ContainSubstring("by policy"))
}
