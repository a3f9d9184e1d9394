// SPDX-License-Identifier: Apache-2.0

package integration

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// fleet has an object of each kind that inherits from a Cluster's topology, owners before their children.
type fleet struct {
	*scene
	class    *clusterv1.ClusterClass
	cluster  *clusterv1.Cluster
	children []client.Object
}

// fleetName is the usual name of a fleet's namespace and of most objects in it.
const fleetName = "fleet"

func newFleet(s *scene, name string) *fleet {
	f := &fleet{scene: s, class: clusterClass(name), cluster: stage.Cluster(name, name)}
	s.ensureNamespace(name)
	f.cluster.Spec.Topology = clusterv1.Topology{
		ClassRef: clusterv1.ClusterClassRef{Name: name}, Version: "v1.36.0",
		Workers: clusterv1.WorkersTopology{
			MachineDeployments: []clusterv1.MachineDeploymentTopology{{Name: "md", Class: "worker"}},
			MachinePools:       []clusterv1.MachinePoolTopology{{Name: "mp", Class: "worker"}},
		},
	}
	f.cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "controlplane.cluster.x-k8s.io", Kind: "ModernControlPlane", Name: name,
	}
	f.set("one")
	s.create(f.class, f.cluster)

	owned := map[string]string{clusterv1.ClusterNameLabel: name, clusterv1.ClusterTopologyOwnedLabel: ""}
	cp := modernControlPlane(name, owned)
	md := stage.MachineDeployment(f.cluster, name, stage.Declared{})
	md.Labels = labels.Merge(owned, map[string]string{clusterv1.ClusterTopologyMachineDeploymentNameLabel: "md"})
	mp := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{
		Namespace: name, Name: name, Labels: labels.Merge(owned, map[string]string{clusterv1.ClusterTopologyMachinePoolNameLabel: "mp"}),
	}, Spec: clusterv1.MachinePoolSpec{ClusterName: name, Template: md.Spec.Template}}
	mp.Spec.Template.Labels = nil
	f.add(cp, md, mp)
	ms := stage.MachineSet(md, name)
	f.add(ms)
	f.addMachine(ms, "of-set", stage.ControlledBy(ms, "MachineSet"))
	f.addMachine(ms, "of-control-plane", *metav1.NewControllerRef(cp, cp.GroupVersionKind()))
	pooled := stage.Machine(ms, "of-pool")
	pooled.OwnerReferences = []metav1.OwnerReference{stage.ControlledBy(mp, "MachinePool")}
	f.add(pooled)
	return f
}

func (f *fleet) add(children ...client.Object) {
	f.create(children...)
	f.children = append(f.children, children...)
}

// addMachine adds a Machine with its InfraMachine and its BootstrapConfig.
func (f *fleet) addMachine(ms *clusterv1.MachineSet, name string, owner metav1.OwnerReference) {
	m := stage.Machine(ms, name)
	m.OwnerReferences = []metav1.OwnerReference{owner}
	m.Spec.InfrastructureRef.Name = name
	m.Spec.Bootstrap = clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
		APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: name,
	}}
	f.add(m)
	f.add(infraMachine(m), bootstrapConfig(m))
}

// declare changes a label in every section of the class and the Cluster to this value, and adds a label with the value in its key. An
// empty value removes all labels.
func (f *fleet) declare(value string) {
	f.t.Helper()
	for _, object := range []client.Object{f.class, f.cluster} {
		f.get(object)
		f.update(object, func() { f.set(value) })
	}
}

func (f *fleet) set(value string) {
	metadata := clusterv1.ObjectMeta{}
	if value != "" {
		metadata.Labels = map[string]string{"cluster": value, "cluster-" + value: ""}
	}
	class, topology := &f.class.Spec, &f.cluster.Spec.Topology
	for _, declares := range []*clusterv1.ObjectMeta{
		&class.ControlPlane.Metadata, &class.Workers.MachineDeployments[0].Metadata, &class.Workers.MachinePools[0].Metadata,
		&topology.ControlPlane.Metadata, &topology.Workers.MachineDeployments[0].Metadata, &topology.Workers.MachinePools[0].Metadata,
	} {
		*declares = metadata
	}
}

// clusterClass returns a ClusterClass with Machines for its control plane and with one class of workers.
func clusterClass(name string) *clusterv1.ClusterClass {
	template := func(group, kind string) clusterv1.ClusterClassTemplateReference {
		return clusterv1.ClusterClassTemplateReference{APIVersion: group + ".cluster.x-k8s.io/v1beta2", Kind: kind, Name: "fake"}
	}
	infrastructure, bootstrap := template("infrastructure", "FakeMachineTemplate"), template("bootstrap", "KubeadmConfigTemplate")
	return &clusterv1.ClusterClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name},
		Spec: clusterv1.ClusterClassSpec{
			Infrastructure: clusterv1.InfrastructureClass{TemplateRef: template("infrastructure", "FakeClusterTemplate")},
			ControlPlane: clusterv1.ControlPlaneClass{
				TemplateRef:           template("controlplane", "ModernControlPlaneTemplate"),
				MachineInfrastructure: clusterv1.ControlPlaneClassMachineInfrastructureTemplate{TemplateRef: infrastructure},
			},
			Workers: clusterv1.WorkersClass{
				MachineDeployments: []clusterv1.MachineDeploymentClass{{
					Class:          "worker",
					Bootstrap:      clusterv1.MachineDeploymentClassBootstrapTemplate{TemplateRef: bootstrap},
					Infrastructure: clusterv1.MachineDeploymentClassInfrastructureTemplate{TemplateRef: infrastructure},
				}},
				MachinePools: []clusterv1.MachinePoolClass{{
					Class:          "worker",
					Bootstrap:      clusterv1.MachinePoolClassBootstrapTemplate{TemplateRef: bootstrap},
					Infrastructure: clusterv1.MachinePoolClassInfrastructureTemplate{TemplateRef: infrastructure},
				}},
			},
		},
	}
}

func modernControlPlane(name string, labels map[string]string) *unstructured.Unstructured {
	cp := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"machineTemplate": map[string]any{"spec": map[string]any{
			"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "FakeMachineTemplate", "name": "fake"},
		}}},
	}}
	cp.SetAPIVersion("controlplane.cluster.x-k8s.io/v1beta2")
	cp.SetKind("ModernControlPlane")
	cp.SetNamespace(name)
	cp.SetName(name)
	cp.SetLabels(labels)
	return cp
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

// machineOf makes m a Machine of the control plane.
func machineOf(cp *unstructured.Unstructured, m *clusterv1.Machine) *clusterv1.Machine {
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: m.Spec.ClusterName, clusterv1.MachineControlPlaneLabel: ""}
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cp, cp.GroupVersionKind())}
	m.Spec.InfrastructureRef.Name = m.Name
	return m
}

// infraMachine returns the InfraMachine of a Machine, with the name in the Machine's reference.
func infraMachine(m *clusterv1.Machine) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": "small"}}}
	u.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	u.SetKind("FakeMachine")
	u.SetNamespace(m.Namespace)
	u.SetName(m.Spec.InfrastructureRef.Name)
	u.SetLabels(map[string]string{clusterv1.ClusterNameLabel: m.Spec.ClusterName})
	u.SetOwnerReferences([]metav1.OwnerReference{stage.ControlledBy(m, "Machine")})
	return u
}

// bootstrapConfig returns the KubeadmConfig of a Machine, with the name of its InfraMachine.
func bootstrapConfig(m *clusterv1.Machine) *unstructured.Unstructured {
	config := infraMachine(m)
	config.SetAPIVersion("bootstrap.cluster.x-k8s.io/v1beta2")
	config.SetKind("KubeadmConfig")
	config.Object["spec"] = map[string]any{"verbosity": int64(1)}
	return config
}
