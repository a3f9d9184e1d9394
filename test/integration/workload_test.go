// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// abroad is a family in a Cluster with a workload cluster, which has the Nodes.
type abroad struct {
	family
	*stage.Workload
}

func (s *scene) abroad(name string) abroad {
	s.t.Helper()
	a := abroad{family: s.settleIn(name, name, declared())}
	a.Workload = s.workload(a.cluster)
	return a
}

// workload makes an API server that no other test uses at the same time the workload cluster of a Cluster. At the end of the test, it
// deletes the Machines, their owners, the Clusters and the Secrets in the Cluster's namespace.
func (s *scene) workload(cluster *clusterv1.Cluster) *stage.Workload {
	s.t.Helper()
	w, err := s.UseWorkload(s.ctx, cluster, lendAbroad(s.t).ControlPlane)
	s.Expect(err).NotTo(HaveOccurred())
	s.t.Cleanup(func() {
		w.Door.Shut() // so that the program does not disturb the next test on the API server
		in := client.InNamespace(cluster.Namespace)
		for _, object := range []client.Object{
			&clusterv1.Machine{}, &clusterv1.MachineSet{}, &clusterv1.MachineDeployment{}, &clusterv1.Cluster{}, &corev1.Secret{},
		} {
			if err := s.Client.DeleteAllOf(context.WithoutCancel(s.ctx), object, in); err != nil {
				s.t.Errorf("forgetting a Cluster: %v", err)
			}
		}
	})
	return w
}

// eventuallyNode waits until the Node of this workload cluster satisfies the check.
func (s *scene) eventuallyNode(a abroad, node *corev1.Node, check func(g Gomega)) {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		g.Expect(a.Client.Get(s.ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		check(g)
	}).WithTimeout(2 * patience).WithPolling(polling).Should(Succeed())
}

func (s *scene) expectInherited(a abroad, node *corev1.Node) {
	s.t.Helper()
	s.eventuallyNode(a, node, func(g Gomega) {
		g.Expect(taint.FormatList(node.Spec.Taints)).To(And(ContainSubstring("gpu=true:NoSchedule"), ContainSubstring("annotated=yes:NoSchedule")))
		g.Expect(node.Labels).To(And(HaveKeyWithValue("node.cluster.x-k8s.io/pool", "gpu"), HaveKeyWithValue("node-role.kubernetes.io/worker", "")))
		g.Expect(node.Annotations).To(HaveKeyWithValue("node.cluster.x-k8s.io/note", "for nodes"))
	})
}

// An unreachable workload cluster delays only its own Nodes, which get the missed changes when it is back. The same applies to a
// workload cluster whose kubeconfig was replaced.
func TestUnreachableWorkloadClusters(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	red, blue := s.abroad(s.own("red")), s.abroad(s.own("blue"))
	for _, a := range []abroad{red, blue} {
		node := stage.Node(a.m.Name)
		s.Expect(a.Client.Create(s.ctx, node)).To(Succeed())
		s.expectInherited(a, node)
	}
	red.Door.Shut()
	for _, a := range []abroad{red, blue} {
		s.get(a.md)
		s.update(a.md, func() { a.md.Spec.Template.Labels["node.cluster.x-k8s.io/season"] = "winter" })
	}
	winter := func(a abroad) {
		node := stage.Node(a.m.Name)
		s.eventuallyNode(a, node, func(g Gomega) { g.Expect(node.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/season", "winter")) })
	}
	winter(blue)
	s.Expect(red.Door.Open()).To(Succeed())
	winter(red)

	s.Expect(s.Rotate(s.ctx, red.cluster, red.Workload)).To(Succeed())
	s.get(red.md)
	s.update(red.md, func() { red.md.Spec.Template.Labels["node.cluster.x-k8s.io/season"] = "spring" })
	node := stage.Node(red.m.Name)
	s.Eventually(func(g Gomega) {
		g.Expect(red.Client.Get(s.ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		g.Expect(node.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/season", "spring"))
	}).WithTimeout(2*time.Minute).Should(Succeed(), "the new kubeconfig is used once the old one has failed for a while")
}
