// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/clusterapi"
)

// carried has the entries that every worker must have.
type carried struct {
	labels map[string]string
	taints []string
}

// walk is a world with a Cluster from a ClusterClass.
type walk struct {
	*world
	cluster *clusterv1.Cluster
	nodes   client.Client
}

// From end to end, with Cluster API's managers: the declarations of a topology reach Nodes and are removed again, Always taints stay, new
// Nodes have all entries, and no write needs Heirloom.
func TestWalk(t *testing.T) {
	w := &walk{world: newWorld(t, nil), cluster: clusterapi.OfClass("fleet", "prod", 1)}
	w.Expect(clusterapi.CreateClass(w.ctx, w.Client, "fleet", func(client.Object) {})).To(Succeed())
	workers := &w.cluster.Spec.Topology.Workers.MachineDeployments[0]
	workers.Metadata.Labels = map[string]string{"node.cluster.x-k8s.io/pool": "gpu", "node.cluster.x-k8s.io/goes": "soon", "node-role.kubernetes.io/worker": ""}
	workers.Metadata.Annotations = map[string]string{
		taint.AlwaysAnnotation: "always=yes:NoSchedule,goes=yes:NoSchedule", taint.InitializeAnnotation: "once=yes:PreferNoSchedule",
	}
	w.create(w.cluster)
	all := carried{
		map[string]string{"node.cluster.x-k8s.io/pool": "gpu", "node.cluster.x-k8s.io/goes": "soon", "node-role.kubernetes.io/worker": ""},
		[]string{"always=yes:NoSchedule", "goes=yes:NoSchedule", "once=yes:PreferNoSchedule"},
	}
	w.expectCarried("create", 1, all)

	w.change(func(workers *clusterv1.MachineDeploymentTopology) {
		workers.Metadata.Labels = map[string]string{"node.cluster.x-k8s.io/pool": "tpu", "node-role.kubernetes.io/worker": ""}
		workers.Metadata.Annotations[taint.AlwaysAnnotation] = "always=yes:NoSchedule"
	})
	delete(all.labels, "node.cluster.x-k8s.io/goes")
	all.labels["node.cluster.x-k8s.io/pool"] = "tpu"
	all.taints = []string{"always=yes:NoSchedule", "once=yes:PreferNoSchedule"}
	w.expectCarried("change and remove", 1, all)

	w.dropTaint()
	w.expectCarried("somebody removes an Always taint", 1, all)
	w.change(func(workers *clusterv1.MachineDeploymentTopology) { *workers.Replicas = 2 })
	w.expectCarried("scale out", 2, all)

	w.Expect(w.StopHeirloom()).To(Succeed())
	w.dropTaint()
	w.change(func(workers *clusterv1.MachineDeploymentTopology) {
		workers.Metadata.Annotations[taint.AlwaysAnnotation] = "always=yes:NoSchedule,new=yes:NoSchedule"
	})
	w.Expect(w.StartHeirloom(w.ctx)).To(Succeed())
	all.taints = append(all.taints, "new=yes:NoSchedule")
	w.expectCarried("Heirloom was away", 2, all)
}

// change changes the only MachineDeployment of the topology.
func (w *walk) change(how func(*clusterv1.MachineDeploymentTopology)) {
	w.t.Helper()
	w.Expect(w.Client.Get(w.ctx, client.ObjectKeyFromObject(w.cluster), w.cluster)).To(Succeed())
	before := w.cluster.DeepCopy()
	how(&w.cluster.Spec.Topology.Workers.MachineDeployments[0])
	w.Expect(w.Client.Patch(w.ctx, w.cluster, client.MergeFrom(before))).To(Succeed())
}

// workers returns the initialized Nodes of the MachineDeployment; none while there is no API server.
func (w *walk) workers() []corev1.Node {
	if w.nodes == nil {
		var err error
		if w.nodes, err = clusterapi.Workload(w.ctx, w.Client, client.ObjectKeyFromObject(w.cluster)); err != nil {
			return nil
		}
	}
	all := &corev1.NodeList{}
	if err := w.nodes.List(w.ctx, all); err != nil {
		return nil
	}
	return slices.DeleteFunc(all.Items, func(node corev1.Node) bool {
		_, leads := node.Labels["node-role.kubernetes.io/control-plane"]
		return leads || !clusterapi.Initialized(node)
	})
}

// dropTaint removes an Always taint from a Node, as a user who does not know its source.
func (w *walk) dropTaint() {
	w.t.Helper()
	node := w.workers()[0]
	before := node.DeepCopy()
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "always" })
	w.Expect(node.Spec.Taints).NotTo(HaveLen(len(before.Spec.Taints)))
	w.Expect(w.nodes.Patch(w.ctx, &node, client.MergeFrom(before))).To(Succeed())
}

// expectCarried waits until there are count workers, which have the entries and no other entries of a kind.
func (w *walk) expectCarried(after string, count int, all carried) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		nodes := w.workers()
		g.Expect(nodes).To(HaveLen(count))
		for _, node := range nodes {
			for key, value := range all.labels {
				g.Expect(node.Labels).To(HaveKeyWithValue(key, value), node.Name)
			}
			if _, stays := all.labels["node.cluster.x-k8s.io/goes"]; !stays {
				g.Expect(node.Labels).NotTo(HaveKey("node.cluster.x-k8s.io/goes"), node.Name)
			}
			var taints []string
			for _, t := range node.Spec.Taints {
				taints = append(taints, taint.FormatList([]corev1.Taint{t}))
			}
			g.Expect(taints).To(ConsistOf(all.taints), node.Name)
		}
	}).Should(Succeed(), after)
}
