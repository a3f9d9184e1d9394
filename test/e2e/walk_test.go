// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// carried has the entries that every Node must have, and the keys that no Node may have any more.
type carried struct {
	labels, annotations map[string]string
	taints              []string
	gone                []string
}

// walk is a world with a Cluster whose control plane is managed externally, and a MachineDeployment.
type walk struct {
	*world
	cluster *clusterv1.Cluster
	md      *clusterv1.MachineDeployment
}

// From end to end, with Cluster API's core manager and with kubelets that register themselves: the declarations of a MachineDeployment
// reach Machines and Nodes and are removed again, Always taints stay, new Nodes have all entries, and no write needs Heirloom.
func TestWalk(t *testing.T) {
	w := &walk{world: newWorld(t, clusterapi.Options{}, nil, "fleet")}
	w.addCluster()
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

// dropTaint removes an Always taint from a Node, as a user who does not know its source.
func (w *walk) dropTaint() {
	w.t.Helper()
	node := w.itsNodes()[0]
	before := node.DeepCopy()
	at := taint.Find(node.Spec.Taints, taint.ID{Key: "annotated-always", Effect: corev1.TaintEffectNoSchedule})
	w.Expect(at).To(BeNumerically(">=", 0))
	node.Spec.Taints = append(node.Spec.Taints[:at], node.Spec.Taints[at+1:]...)
	w.Expect(w.nodes.Patch(w.ctx, &node, client.MergeFrom(before))).To(Succeed())
	w.Expect(node.Spec.Taints).NotTo(ContainElement(HaveField("Key", "annotated-always")), "the write itself")
}

// expectCarried waits until there are count Nodes, and all Nodes and Machines have the entries.
func (w *walk) expectCarried(after string, count int, all carried) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		g.Expect(w.Client.Get(w.ctx, client.ObjectKeyFromObject(w.md), w.md)).To(Succeed())
		for _, replicas := range []*int32{w.md.Status.Replicas, w.md.Status.ReadyReplicas, w.md.Status.UpToDateReplicas} {
			g.Expect(replicas).To(HaveValue(BeEquivalentTo(count)), "%v", w.md.Status.Conditions)
		}
		for _, machine := range w.list(w.Client, machineKind, "fleet") {
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
		nodes := w.itsNodes()
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

// ofProviders has the objects of providers that a Cluster needs.
const ofProviders = `
{apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: FakeCluster, metadata: {namespace: fleet, name: prod}, spec: {}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: FakeMachineTemplate
metadata: {namespace: fleet, name: small}
spec: {template: {spec: {size: small}}}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: ModernControlPlane
metadata: {namespace: fleet, name: prod}
spec: {version: ` + kubernetesVersion + `}
`

// addCluster creates the Cluster.
func (w *walk) addCluster() {
	w.t.Helper()
	w.addKubeconfig("fleet", "prod", clusterv1.ClusterSecretType)
	objects, err := controlplane.DecodeObjects(ofProviders)
	w.Expect(err).NotTo(HaveOccurred())
	for i := range objects {
		w.create(&objects[i])
	}
	w.cluster = stage.Cluster("fleet", "prod")
	w.cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "FakeCluster", Name: "prod"}
	w.cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "ModernControlPlane", Name: "prod"}
	w.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}
	w.create(w.cluster)
}

// deploy creates a MachineDeployment of two FakeMachines.
func (w *walk) deploy(d stage.Declared) {
	w.t.Helper()
	w.md = stage.MachineDeployment(w.cluster, "workers", d)
	w.md.Spec.Replicas = ptr.To(int32(2))
	w.md.Spec.Template.Spec.InfrastructureRef.Kind, w.md.Spec.Template.Spec.InfrastructureRef.Name = "FakeMachineTemplate", "small"
	w.md.Spec.Template.Spec.Version = kubernetesVersion
	w.create(w.md)
}

// change changes the MachineDeployment.
func (w *walk) change(how func(*clusterv1.MachineDeployment)) {
	w.t.Helper()
	w.Expect(w.Client.Get(w.ctx, client.ObjectKeyFromObject(w.md), w.md)).To(Succeed())
	before := w.md.DeepCopy()
	how(w.md)
	w.Expect(w.Client.Patch(w.ctx, w.md, client.MergeFrom(before))).To(Succeed())
}

// itsNodes returns the Nodes that have a Machine.
func (w *walk) itsNodes() []corev1.Node {
	list := &corev1.NodeList{}
	w.Expect(w.nodes.List(w.ctx, list)).To(Succeed())
	machines := w.list(w.Client, machineKind, "fleet")
	return slices.DeleteFunc(list.Items, func(node corev1.Node) bool {
		return !slices.ContainsFunc(machines, func(m unstructured.Unstructured) bool { return m.GetName() == node.Name })
	})
}
