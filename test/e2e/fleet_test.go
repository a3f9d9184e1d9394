// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// fleet is a Namespace with a Cluster from a ClusterClass.
type fleet struct {
	*world
	namespace string
	// cluster is nil while the Cluster does not exist, nodes while its API server is unknown.
	cluster *clusterv1.Cluster
	nodes   client.Client
}

// build creates the fleet.
func (f *fleet) build() {
	f.t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "managed.yaml"))
	f.Expect(err).NotTo(HaveOccurred())
	objects, err := controlplane.DecodeObjects(string(content))
	f.Expect(err).NotTo(HaveOccurred())
	for i := range objects {
		objects[i].SetNamespace(f.namespace)
		f.create(&objects[i])
	}
	f.cluster = &clusterv1.Cluster{}
	f.cluster.Namespace, f.cluster.Name = f.namespace, "managed"
}

// allNodes returns the Nodes of the Cluster; none while its API server does not answer.
func (f *fleet) allNodes() []unstructured.Unstructured {
	if f.cluster == nil {
		return nil
	}
	if f.nodes == nil {
		var err error
		if f.nodes, err = clusterapi.Workload(f.ctx, f.Client, client.ObjectKeyFromObject(f.cluster)); err != nil {
			return nil
		}
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(nodeKind.GroupVersion().WithKind("NodeList"))
	if err := f.nodes.List(f.ctx, list); err != nil {
		return nil
	}
	return list.Items
}

// built expects that the Cluster has everything that its topology declares.
func (f *fleet) built(g Gomega, nodes []unstructured.Unstructured) {
	g.Expect(f.Client.Get(f.ctx, client.ObjectKeyFromObject(f.cluster), f.cluster)).To(Succeed())
	class := &clusterv1.ClusterClass{}
	g.Expect(f.Client.Get(f.ctx, client.ObjectKey{Namespace: f.namespace, Name: "class"}, class)).To(Succeed())
	g.Expect(class.Status.ObservedGeneration).To(Equal(class.Generation))
	reconciled := meta.FindStatusCondition(f.cluster.Status.Conditions, clusterv1.ClusterTopologyReconciledCondition)
	g.Expect(reconciled).To(HaveField("Status", metav1.ConditionTrue), "%v", reconciled)
	g.Expect(reconciled.ObservedGeneration).To(Equal(f.cluster.Generation))

	leaders, machines, workers := f.wanted()
	g.Expect(f.cluster.Status.ControlPlane).NotTo(BeNil())
	g.Expect(f.cluster.Status.Workers).NotTo(BeNil())
	counts := []*int32{f.cluster.Status.ControlPlane.Replicas, f.cluster.Status.ControlPlane.ReadyReplicas, f.cluster.Status.ControlPlane.UpToDateReplicas}
	g.Expect(counts).To(HaveEach(HaveValue(Equal(leaders))), "%v", f.cluster.Status.Conditions)
	g.Expect(f.cluster.Status.Workers.Replicas).To(HaveValue(Equal(workers)), "%v", f.cluster.Status.Conditions)
	// status.workers.readyReplicas does not help: a MachinePool may learn late that its Machines are ready.
	all := &clusterv1.MachineList{}
	g.Expect(f.Client.List(f.ctx, all, client.InNamespace(f.namespace))).To(Succeed())
	g.Expect(all.Items).To(HaveLen(int(machines)))
	for _, machine := range all.Items {
		g.Expect(meta.IsStatusConditionTrue(machine.Status.Conditions, clusterv1.MachineReadyCondition)).To(BeTrue(), "%v", machine.Status.Conditions)
	}
	g.Expect(nodes).To(HaveLen(int(leaders + workers)))
	for _, node := range nodes {
		g.Expect(text(node.Object["status"])).To(MatchRegexp(`"status":"True","type":"Ready"`), node.GetName())
	}
}

// wanted returns the numbers of control plane Machines, of all Machines and of workers that the topology declares.
func (f *fleet) wanted() (leaders, machines, workers int32) {
	topology := f.cluster.Spec.Topology
	leaders = ptr.Deref(topology.ControlPlane.Replicas, 0)
	machines = leaders
	for _, md := range topology.Workers.MachineDeployments {
		workers += ptr.Deref(md.Replicas, 0)
		machines += ptr.Deref(md.Replicas, 0)
	}
	for _, mp := range topology.Workers.MachinePools {
		workers += ptr.Deref(mp.Replicas, 0)
		if mp.Class != "bare" {
			machines += ptr.Deref(mp.Replicas, 0)
		}
	}
	return leaders, machines, workers
}

// machines returns the Machines with a label.
func (f *fleet) machines(label string) []unstructured.Unstructured {
	return slices.DeleteFunc(f.list(f.Client, machineKind, f.namespace), func(m unstructured.Unstructured) bool {
		_, has := m.GetLabels()[label]
		return !has
	})
}

// changeCluster changes the Cluster's topology.
func (f *fleet) changeCluster(how func(*clusterv1.Topology)) {
	f.t.Helper()
	f.Expect(f.Client.Get(f.ctx, client.ObjectKeyFromObject(f.cluster), f.cluster)).To(Succeed())
	before := f.cluster.DeepCopy()
	how(&f.cluster.Spec.Topology)
	f.Expect(f.Client.Patch(f.ctx, f.cluster, client.MergeFrom(before))).To(Succeed())
}

// changeClass changes the ClusterClass.
func (f *fleet) changeClass(how func(*clusterv1.ClusterClassSpec)) {
	f.t.Helper()
	class := &clusterv1.ClusterClass{}
	f.Expect(f.Client.Get(f.ctx, client.ObjectKey{Namespace: f.namespace, Name: "class"}, class)).To(Succeed())
	before := class.DeepCopy()
	how(&class.Spec)
	f.Expect(f.Client.Patch(f.ctx, class, client.MergeFrom(before))).To(Succeed())
}

// sections returns the metadata that the topology declares, the control plane's first.
func sections(topology *clusterv1.Topology) []clusterv1.ObjectMeta {
	all := []clusterv1.ObjectMeta{topology.ControlPlane.Metadata}
	for _, md := range topology.Workers.MachineDeployments {
		all = append(all, md.Metadata)
	}
	for _, mp := range topology.Workers.MachinePools {
		all = append(all, mp.Metadata)
	}
	return all
}

// scaled returns a function that scales all workers.
func scaled(workers int32) func(*fleet) {
	return func(f *fleet) {
		f.t.Helper()
		f.changeCluster(func(topology *clusterv1.Topology) {
			topology.Workers.MachineDeployments[0].Replicas = &workers
			for i := range topology.Workers.MachinePools {
				topology.Workers.MachinePools[i].Replicas = &workers
			}
		})
	}
}

// upgrade rolls the control plane and the workers.
func (f *fleet) upgrade() {
	f.changeCluster(func(topology *clusterv1.Topology) { topology.Version = "v1.36.1" })
}

// remediate makes a Node of the MachineDeployment unready, so that its MachineHealthCheck remediates the Machine.
func (f *fleet) remediate() {
	f.t.Helper()
	sick := f.machines(clusterv1.MachineDeploymentNameLabel)[0]
	node := &corev1.Node{}
	f.Expect(f.nodes.Get(f.ctx, client.ObjectKey{Name: sick.GetName()}, node)).To(Succeed())
	before := node.DeepCopy()
	for i := range node.Status.Conditions {
		if condition := &node.Status.Conditions[i]; condition.Type == corev1.NodeReady {
			condition.Status = corev1.ConditionFalse
		}
	}
	f.Expect(f.nodes.Patch(f.ctx, node, client.StrategicMergeFrom(before))).To(Succeed()) // this API server has no subresources
	f.expectGone(&sick)
}

// withoutMachineDeployment removes the MachineDeployment from the topology.
func (f *fleet) withoutMachineDeployment() {
	f.changeCluster(func(t *clusterv1.Topology) { t.Workers.MachineDeployments = nil })
}

// demolish deletes the Cluster and all its objects.
func (f *fleet) demolish() {
	f.t.Helper()
	f.Expect(f.Client.Delete(f.ctx, f.cluster)).To(Succeed())
	f.expectGone(f.cluster)
	f.cluster, f.nodes = nil, nil
}

func (f *fleet) expectGone(object client.Object) {
	f.t.Helper()
	f.Eventually(func() error { return f.Client.Get(f.ctx, client.ObjectKeyFromObject(object), object) }).
		Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
}
