// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// carried is what every Node is to carry, and what none may carry any more.
type carried struct {
	labels, annotations map[string]string
	taints              []string
	gone                []string
}

// From end to end, beside Cluster API's core manager and with kubelets that register themselves: what a MachineDeployment
// declares reaches Machines and Nodes and leaves them again, Always taints stay, new Nodes have all of it, and nobody needs
// Heirloom for a write.
func TestWalk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setting{heirloom: true})
	all := carried{
		labels:      map[string]string{"node.cluster.x-k8s.io/pool": "gpu", "node.cluster.x-k8s.io/goes": "soon", "node-role.kubernetes.io/worker": ""},
		annotations: map[string]string{"node.cluster.x-k8s.io/note": "nodes"},
		taints:      []string{"annotated-always=yes:NoSchedule", "annotated-goes=yes:NoSchedule", "annotated-once=yes:PreferNoSchedule"},
	}
	w.deploy(stage.Declared{Labels: all.labels, Annotations: map[string]string{
		"node.cluster.x-k8s.io/note": "nodes", taint.AlwaysAnnotation: "annotated-always=yes:NoSchedule,annotated-goes=yes:NoSchedule",
		taint.InitializeAnnotation: "annotated-once=yes:PreferNoSchedule",
	}})
	w.expectCarried("create", 2, all)

	w.change(func(md *clusterv1.MachineDeployment) {
		template := &md.Spec.Template
		template.Labels["node.cluster.x-k8s.io/pool"] = "tpu"
		delete(template.Labels, "node.cluster.x-k8s.io/goes")
		template.Annotations[taint.AlwaysAnnotation] = "annotated-always=yes:NoSchedule"
	})
	delete(all.labels, "node.cluster.x-k8s.io/goes")
	all.labels["node.cluster.x-k8s.io/pool"] = "tpu"
	all.taints, all.gone = []string{"annotated-always=yes:NoSchedule"}, []string{"node.cluster.x-k8s.io/goes", "annotated-goes"}
	w.expectCarried("change and remove", 2, all)

	w.dropTaint()
	w.expectCarried("somebody removes an Always taint", 2, all)

	w.change(func(md *clusterv1.MachineDeployment) { *md.Spec.Replicas = 3 })
	w.expectCarried("scale out", 3, all)

	w.Expect(w.StopHeirloom()).To(Succeed())
	w.dropTaint()
	w.change(func(md *clusterv1.MachineDeployment) {
		md.Spec.Template.Annotations[taint.AlwaysAnnotation] = "annotated-always=yes:NoSchedule,annotated-new=yes:NoSchedule"
	})
	w.Expect(w.StartHeirloom(w.ctx)).To(Succeed())
	all.taints = append(all.taints, "annotated-new=yes:NoSchedule")
	w.expectCarried("Heirloom was away", 3, all)
}

// dropTaint takes an Always taint from a Node, as somebody does who does not know where it comes from.
func (w *world) dropTaint() {
	w.t.Helper()
	node := w.nodes(w)[0]
	before := node.DeepCopy()
	at := taint.Find(node.Spec.Taints, taint.ID{Key: "annotated-always", Effect: corev1.TaintEffectNoSchedule})
	w.Expect(at).To(BeNumerically(">=", 0))
	node.Spec.Taints = append(node.Spec.Taints[:at], node.Spec.Taints[at+1:]...)
	w.Expect(w.workload.Client.Patch(w.ctx, &node, client.MergeFrom(before))).To(Succeed())
	w.Expect(node.Spec.Taints).NotTo(ContainElement(HaveField("Key", "annotated-always")), "the write itself")
}

// expectCarried waits until there are so many Nodes, and each carries all of it, as its Machine does.
func (w *world) expectCarried(after string, count int, all carried) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		w.deployed(g)
		for _, machine := range w.machines(plain) {
			for key, value := range all.labels {
				g.Expect(machine.GetLabels()).To(HaveKeyWithValue(key, value), machine.GetName())
			}
			for key, value := range all.annotations {
				g.Expect(machine.GetAnnotations()).To(HaveKeyWithValue(key, value), machine.GetName())
			}
			for _, gone := range all.gone {
				g.Expect(text(machine.Object["metadata"])).NotTo(ContainSubstring(fmt.Sprintf("%q:", gone)), machine.GetName())
			}
		}
		nodes := w.nodes(g)
		g.Expect(nodes).To(HaveLen(count))
		for _, node := range nodes {
			expectNodeCarries(g, node, all)
		}
	}).Should(Succeed(), after)
}

func expectNodeCarries(g Gomega, node corev1.Node, all carried) {
	for key, value := range all.labels {
		g.Expect(node.Labels).To(HaveKeyWithValue(key, value), node.Name)
	}
	for key, value := range all.annotations {
		g.Expect(node.Annotations).To(HaveKeyWithValue(key, value), node.Name)
	}
	taints := taint.FormatList(node.Spec.Taints)
	for _, t := range all.taints {
		g.Expect(taints).To(ContainSubstring(t), node.Name)
	}
	for _, gone := range all.gone {
		g.Expect(node.Labels).NotTo(HaveKey(gone), node.Name)
		g.Expect(taints).NotTo(ContainSubstring(gone), node.Name)
	}
}
