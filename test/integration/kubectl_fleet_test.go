// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// deploy stores the Deployments from which the plugin reads settings. No Pods of them run: Heirloom is a process of its own with the same
// settings.
func (w *kubectlWorld) deploy() {
	w.t.Helper()
	heirloom := slices.DeleteFunc(render(w.t, map[string]any{"additionalSyncMachineLabels": []any{alsoSynced}}),
		func(object unstructured.Unstructured) bool { return object.GetKind() != "Deployment" })
	w.Expect(heirloom).To(HaveLen(1))
	w.Expect(controlplane.Apply(w.ctx, w.Client, heirloom)).To(Succeed())
	w.ensureNamespace("capi-system")
	w.create(coreManager())
	for _, key := range []client.ObjectKey{
		client.ObjectKeyFromObject(&heirloom[0]), {Namespace: "capi-system", Name: "capi-controller-manager"},
	} {
		w.rolledOut(key)
	}
}

// rolledOut sets the status of a Deployment like its controller.
func (w *kubectlWorld) rolledOut(key client.ObjectKey) {
	w.t.Helper()
	deployment := &appsv1.Deployment{}
	w.Expect(w.Client.Get(w.ctx, key, deployment)).To(Succeed())
	replicas := ptr.Deref(deployment.Spec.Replicas, 1)
	deployment.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"}},
	}
	w.Expect(w.Client.Status().Update(w.ctx, deployment)).To(Succeed())
}

// coreManager returns the Deployment of Cluster API's core manager as clusterctl installs it, with the feature gates that affect the
// rules.
func coreManager() *appsv1.Deployment {
	selector := map[string]string{"cluster.x-k8s.io/provider": "cluster-api", "control-plane": "controller-manager"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "capi-system", Name: "capi-controller-manager", Labels: labels.Merge(selector, map[string]string{"clusterctl.cluster.x-k8s.io": ""}),
		},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "manager", Image: "registry.k8s.io/cluster-api/cluster-api-controller:v1.14.2", Command: []string{"/manager"},
					Args: []string{
						"--leader-elect", "--diagnostics-address=:8443", "--insecure-diagnostics=false",
						"--feature-gates=MachinePool=true,ClusterTopology=true,MachineTaintPropagation=true",
					},
				}}},
			},
		},
	}
}

// populate creates both Clusters, and waits until all Nodes have inherited.
func (w *kubectlWorld) populate() {
	w.t.Helper()
	w.prod = w.makeProd()
	w.edge = w.makeEdge()
	for _, cluster := range []kubectlCluster{w.prod, w.edge} {
		stranger := stage.Node(cluster.Name + "-stranger")
		w.Expect(cluster.Client.Create(w.ctx, stranger, client.FieldOwner("kubelet"))).To(Succeed())
	}
	w.inherits(w.prod, "prod-cp-1", "dedicated=control-plane:NoSchedule", "team", "platform")
	for i := range 3 {
		w.inherits(w.prod, fmt.Sprint("prod-gpu-", i+1), "nvidia.com/gpu=present:NoSchedule", "node.cluster.x-k8s.io/tier", "standard")
	}
	w.inherits(w.prod, "prod-spot-1", "spot:NoSchedule", "node.cluster.x-k8s.io/pool", "spot")
	w.inherits(w.edge, "edge-web-1", "dedicated=web:NoSchedule", "team", "web")
}

// inherits waits until a Node has its inherited entries, and sets the node reference of the Machine with its name, if there is one.
func (w *kubectlWorld) inherits(cluster kubectlCluster, name, taints, label, value string) {
	w.t.Helper()
	a := abroad{Workload: cluster.Workload}
	node := stage.Node(name)
	w.eventuallyNode(a, node, func(g Gomega) {
		g.Expect(taint.FormatList(node.Spec.Taints)).To(ContainSubstring(taints))
		g.Expect(node.Labels).To(HaveKeyWithValue(label, value))
		g.Expect(taint.Find(node.Spec.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))).To(Equal(-1))
	})
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: name}}
	if w.Client.Get(w.ctx, client.ObjectKeyFromObject(m), m) != nil {
		return
	}
	w.eventually(m, func(g Gomega) { g.Expect(m.Labels).To(HaveKeyWithValue(label, value)) })
	before := m.DeepCopy()
	m.Status.NodeRef.Name = name
	w.Expect(w.Client.Status().Patch(w.ctx, m, client.MergeFrom(before))).To(Succeed())
}

// makeProd creates a Cluster with a topology, and the objects that Cluster API would create for it, without entries: all entries come
// from Heirloom.
func (w *kubectlWorld) makeProd() kubectlCluster {
	w.t.Helper()
	cluster := prodCluster()
	w.createAs("kubectl", standardClass(), cluster)
	owned := map[string]string{clusterv1.ClusterNameLabel: cluster.Name, clusterv1.ClusterTopologyOwnedLabel: ""}

	cp := kubeadmControlPlane("prod-cp")
	cp.SetNamespace(fleetName)
	cp.SetLabels(owned)
	unstructured.RemoveNestedField(cp.Object, "spec", "machineTemplate", "metadata")
	unstructured.RemoveNestedField(cp.Object, "spec", "machineTemplate", "spec", "deletion")
	unstructured.RemoveNestedField(cp.Object, "spec", "machineTemplate", "spec", "taints")
	w.createAs("capi-topology", cp)
	first := machineOf(cp, stage.Machine(&clusterv1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetName}, Spec: clusterv1.MachineSetSpec{ClusterName: cluster.Name},
	}, "prod-cp-1"))

	md := stage.MachineDeployment(cluster, "prod-gpu", stage.Declared{})
	md.Spec.Replicas = ptr.To(int32(3))
	md.Labels = labels.Merge(owned, map[string]string{clusterv1.ClusterTopologyMachineDeploymentNameLabel: "gpu"})
	mp := &clusterv1.MachinePool{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fleetName, Name: "prod-spot", Labels: labels.Merge(owned, map[string]string{clusterv1.ClusterTopologyMachinePoolNameLabel: "spot"}),
		},
		Spec: clusterv1.MachinePoolSpec{
			ClusterName: cluster.Name, Replicas: ptr.To(int32(1)), Template: *md.Spec.Template.DeepCopy(),
			ProviderIDList: []string{stage.ProviderID("prod-spot-1")},
		},
	}
	mp.Spec.Template.Labels = nil
	w.createAs("capi-topology", md, mp)
	ms := stage.MachineSet(md, "prod-gpu-7x2kq")
	ms.Spec.Replicas = ptr.To(int32(3))
	w.createAs("capi-machinedeployment", ms)
	made := kubectlCluster{cluster, w.workload(cluster)}
	w.addMachine(made, first)
	for i := range 3 {
		w.addMachine(made, stage.Machine(ms, fmt.Sprint("prod-gpu-", i+1)))
	}
	w.Expect(made.Client.Create(w.ctx, stage.Node("prod-spot-1"), client.FieldOwner("kubelet"))).To(Succeed())
	return made
}

// makeEdge creates a Cluster without a topology.
func (w *kubectlWorld) makeEdge() kubectlCluster {
	w.t.Helper()
	cluster := stage.Cluster(fleetName, "edge")
	w.createAs("kubectl", cluster)
	md := stage.MachineDeployment(cluster, "edge-web", stage.Declared{
		Labels:      map[string]string{"node.cluster.x-k8s.io/pool": "web", "team": "web"},
		Annotations: map[string]string{taint.AlwaysAnnotation: "dedicated=web:NoSchedule"},
	})
	w.createAs("kubectl", md)
	ms := stage.MachineSet(md, "edge-web-9b4ts")
	w.createAs("capi-machinedeployment", ms)
	made := kubectlCluster{cluster, w.workload(cluster)}
	w.addMachine(made, stage.Machine(ms, "edge-web-1"))
	return made
}

// addMachine adds a Machine with its InfraMachine, its BootstrapConfig and its Node.
func (w *kubectlWorld) addMachine(cluster kubectlCluster, m *clusterv1.Machine) {
	w.t.Helper()
	m.Spec.Bootstrap = clusterv1.Bootstrap{
		DataSecretName: ptr.To(m.Name),
		ConfigRef:      clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: m.Name},
	}
	w.createAs("capi-machineset", m)
	w.createAs("capi-machineset", infraMachine(m), bootstrapConfig(m))
	w.Expect(cluster.Client.Create(w.ctx, stage.Node(m.Name), client.FieldOwner("kubelet"))).To(Succeed())
}

// createAs stores objects with the field manager of the controller or tool that creates them in a real management cluster.
func (w *kubectlWorld) createAs(manager client.FieldOwner, objects ...client.Object) {
	w.t.Helper()
	for _, object := range objects {
		w.Expect(w.Client.Create(w.ctx, object, manager)).To(Succeed())
	}
}

// prodCluster returns a Cluster with a topology that declares each kind of content.
func prodCluster() *clusterv1.Cluster {
	cluster := stage.Cluster(fleetName, "prod")
	always := clusterv1.MachineTaintPropagationAlways
	cluster.Spec.Topology = clusterv1.Topology{
		ClassRef: clusterv1.ClusterClassRef{Name: "standard"}, Version: "v1.36.0",
		ControlPlane: clusterv1.ControlPlaneTopology{
			Replicas: ptr.To(int32(1)), Taints: stage.Taints(always, "dedicated=control-plane:NoSchedule"),
			Metadata: clusterv1.ObjectMeta{Labels: map[string]string{"node.cluster.x-k8s.io/pool": "control-plane"}},
		},
		Workers: clusterv1.WorkersTopology{
			MachineDeployments: []clusterv1.MachineDeploymentTopology{{
				Name: "gpu", Class: "worker", Replicas: ptr.To(int32(3)), Taints: stage.Taints(always, "nvidia.com/gpu=present:NoSchedule"),
				Metadata: clusterv1.ObjectMeta{
					Labels:      map[string]string{"node.cluster.x-k8s.io/pool": "gpu", "cost-center": "research"},
					Annotations: map[string]string{"node.cluster.x-k8s.io/contact": "gpu-oncall@example.com"},
				},
			}},
			MachinePools: []clusterv1.MachinePoolTopology{{
				Name: "spot", Class: "worker", Replicas: ptr.To(int32(1)), Taints: stage.Taints(always, "spot:NoSchedule"),
				Metadata: clusterv1.ObjectMeta{Labels: map[string]string{"node.cluster.x-k8s.io/pool": "spot"}},
			}},
		},
	}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "controlplane.cluster.x-k8s.io", Kind: "KubeadmControlPlane", Name: "prod-cp",
	}
	return cluster
}

// standardClass returns a ClusterClass whose declarations the topology partly overrides.
func standardClass() *clusterv1.ClusterClass {
	class := clusterClass("standard")
	class.Namespace = fleetName
	class.Spec.ControlPlane.TemplateRef.Kind = "KubeadmControlPlaneTemplate"
	class.Spec.ControlPlane.Metadata.Labels = map[string]string{"team": "platform"}
	class.Spec.ControlPlane.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(600))
	workers := clusterv1.ObjectMeta{
		Labels:      map[string]string{"node.cluster.x-k8s.io/pool": "general", "node.cluster.x-k8s.io/tier": "standard"},
		Annotations: map[string]string{taint.AlwaysAnnotation: "batch:PreferNoSchedule"},
	}
	class.Spec.Workers.MachineDeployments[0].Metadata = workers
	class.Spec.Workers.MachineDeployments[0].Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(300))
	class.Spec.Workers.MachinePools[0].Metadata = clusterv1.ObjectMeta{Labels: workers.Labels}
	return class
}
