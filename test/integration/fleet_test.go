// SPDX-License-Identifier: Apache-2.0

package integration

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// fleet is one of everything that inherits from a Cluster's topology, owners before their children.
type fleet struct {
	*scene
	class    *clusterv1.ClusterClass
	cluster  *clusterv1.Cluster
	children []client.Object
}

// fleetName is the usual name of a fleet's namespace, and of most that is in it.
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
	md.Labels = merged(owned, map[string]string{clusterv1.ClusterTopologyMachineDeploymentNameLabel: "md"})
	mp := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{
		Namespace: name, Name: name, Labels: merged(owned, map[string]string{clusterv1.ClusterTopologyMachinePoolNameLabel: "mp"}),
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
	config := infraMachine(m)
	config.SetAPIVersion("bootstrap.cluster.x-k8s.io/v1beta2")
	config.SetKind("KubeadmConfig")
	config.Object["spec"] = map[string]any{"verbosity": int64(1)}
	f.add(infraMachine(m), config)
}

// declare changes what the class and the Cluster declare.
func (f *fleet) declare(value string) {
	f.t.Helper()
	f.get(f.class)
	f.update(f.class, func() { f.setClass(value) })
	f.get(f.cluster)
	f.update(f.cluster, func() { f.setCluster(value) })
}

func (f *fleet) set(value string) {
	f.setClass(value)
	f.setCluster(value)
}

// setClass makes the class declare a value everywhere, or nothing.
func (f *fleet) setClass(value string) {
	metadata, gates, timeout := clusterv1.ObjectMeta{}, []clusterv1.MachineReadinessGate(nil), (*int32)(nil)
	if value != "" {
		metadata = clusterv1.ObjectMeta{
			Labels: map[string]string{"class": value, "cluster": "overruled"}, Annotations: map[string]string{"class/note": value},
		}
		gates = []clusterv1.MachineReadinessGate{{ConditionType: "example.com/" + value}}
		timeout = ptr.To(int32(len(value) * 10))
	}
	spec := &f.class.Spec
	spec.ControlPlane.Metadata, spec.ControlPlane.ReadinessGates = metadata, gates
	spec.ControlPlane.Deletion.NodeDrainTimeoutSeconds = timeout
	for i := range spec.Workers.MachineDeployments {
		md, mp := &spec.Workers.MachineDeployments[i], &spec.Workers.MachinePools[i]
		md.Metadata, md.ReadinessGates, md.MinReadySeconds = metadata, gates, timeout
		md.Deletion.NodeDeletionTimeoutSeconds, mp.Metadata, mp.MinReadySeconds = timeout, metadata, timeout
	}
}

// setCluster makes the Cluster's topology declare a value everywhere, or nothing.
func (f *fleet) setCluster(value string) {
	metadata, taints := clusterv1.ObjectMeta{}, []clusterv1.MachineTaint(nil)
	if value != "" {
		metadata = clusterv1.ObjectMeta{
			Labels:      map[string]string{"cluster": value},
			Annotations: map[string]string{taint.AlwaysAnnotation: "noted=" + value + ":NoExecute"},
		}
		taints = append(stage.Taints(clusterv1.MachineTaintPropagationAlways, "gpu="+value+":NoSchedule"),
			stage.Taints(clusterv1.MachineTaintPropagationOnInitialization, "boot="+value+":NoSchedule")...)
	}
	topology := &f.cluster.Spec.Topology
	topology.ControlPlane.Metadata, topology.ControlPlane.Taints = metadata, taints
	md, mp := &topology.Workers.MachineDeployments[0], &topology.Workers.MachinePools[0]
	md.Metadata, md.Taints, mp.Metadata, mp.Taints = metadata, taints, metadata, taints
}

// clusterClass returns a ClusterClass whose control plane consists of Machines, with one class of workers.
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
