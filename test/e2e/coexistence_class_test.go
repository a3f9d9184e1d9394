// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

const (
	bootstrapVersion      = "bootstrap.cluster.x-k8s.io/v1beta2"
	controlPlaneVersion   = "controlplane.cluster.x-k8s.io/v1beta2"
	infrastructureVersion = "infrastructure.cluster.x-k8s.io/v1beta2"
)

// addClass creates a ClusterClass with a kubeadm control plane, MachineDeployments, and MachinePools of a provider with
// Machines and of one without. With typed, it declares taints in fields, too.
func (w *world) addClass(typed bool) {
	w.t.Helper()
	for _, template := range []*unstructured.Unstructured{
		templateOf(infrastructureVersion, "FakeClusterTemplate", "class", map[string]any{}),
		templateOf(infrastructureVersion, "FakeMachineTemplate", "class-small", map[string]any{"size": "small"}),
		templateOf(infrastructureVersion, "FakeMachineTemplate", "class-big", map[string]any{"size": "big"}),
		templateOf(infrastructureVersion, "FakeMachinePoolTemplate", "pooled", map[string]any{"machines": true}),
		templateOf(infrastructureVersion, "FakeMachinePoolTemplate", "bare", map[string]any{"machines": false}),
		templateOf(bootstrapVersion, "KubeadmConfigTemplate", "class", map[string]any{
			"joinConfiguration": map[string]any{"nodeRegistration": map[string]any{"imagePullPolicy": "IfNotPresent"}},
		}),
		// With an etcd of somebody else's, the control-plane manager does not look for members on its Machines.
		templateOf(controlPlaneVersion, "KubeadmControlPlaneTemplate", "class", map[string]any{"kubeadmConfigSpec": map[string]any{
			"clusterConfiguration": map[string]any{"etcd": map[string]any{"external": map[string]any{
				"endpoints": []any{"https://etcd.example.com:2379"},
				"caFile":    "/etc/etcd/ca.crt", "certFile": "/etc/etcd/client.crt", "keyFile": "/etc/etcd/client.key",
			}}},
		}}),
	} {
		w.create(template)
	}
	class := &clusterv1.ClusterClass{}
	class.Namespace, class.Name = "fleet", "class"
	class.Spec.Infrastructure.TemplateRef = reference(infrastructureVersion, "FakeClusterTemplate", "class")
	class.Spec.ControlPlane = controlPlaneClass(typed)
	class.Spec.Workers.MachineDeployments = []clusterv1.MachineDeploymentClass{machineDeploymentClass(typed)}
	class.Spec.Workers.MachinePools = []clusterv1.MachinePoolClass{machinePoolClass("pooled"), machinePoolClass("bare")}
	w.create(class)
}

func controlPlaneClass(typed bool) clusterv1.ControlPlaneClass {
	class := clusterv1.ControlPlaneClass{
		Metadata:       declaredByClass("control-plane"),
		TemplateRef:    reference(controlPlaneVersion, "KubeadmControlPlaneTemplate", "class"),
		Deletion:       clusterv1.ControlPlaneClassMachineDeletionSpec{NodeDeletionTimeoutSeconds: ptr.To(int32(30))},
		ReadinessGates: []clusterv1.MachineReadinessGate{{ConditionType: clusterv1.MachineNodeReadyCondition}},
		HealthCheck: clusterv1.ControlPlaneClassHealthCheck{
			Checks: clusterv1.ControlPlaneClassHealthCheckChecks{NodeStartupTimeoutSeconds: ptr.To(int32(600))},
		},
	}
	class.MachineInfrastructure.TemplateRef = reference(infrastructureVersion, "FakeMachineTemplate", "class-small")
	if typed {
		class.Taints = stage.Taints(clusterv1.MachineTaintPropagationAlways, "class=control-plane:PreferNoSchedule")
	}
	return class
}

func machineDeploymentClass(typed bool) clusterv1.MachineDeploymentClass {
	class := clusterv1.MachineDeploymentClass{
		Class: "workers", Metadata: declaredByClass("workers"),
		Deletion:        clusterv1.MachineDeploymentClassMachineDeletionSpec{NodeDrainTimeoutSeconds: ptr.To(int32(30))},
		MinReadySeconds: ptr.To(int32(1)),
		ReadinessGates:  []clusterv1.MachineReadinessGate{{ConditionType: clusterv1.MachineNodeReadyCondition}},
		HealthCheck: clusterv1.MachineDeploymentClassHealthCheck{
			Checks: clusterv1.MachineDeploymentClassHealthCheckChecks{NodeStartupTimeoutSeconds: ptr.To(int32(600))},
		},
	}
	class.Bootstrap.TemplateRef = reference(bootstrapVersion, "KubeadmConfigTemplate", "class")
	class.Infrastructure.TemplateRef = reference(infrastructureVersion, "FakeMachineTemplate", "class-small")
	if typed {
		class.Taints = stage.Taints(clusterv1.MachineTaintPropagationAlways, "class=workers:NoSchedule")
	}
	return class
}

// machinePoolClass declares no taints in fields, which Cluster API's own webhook refuses for MachinePools.
func machinePoolClass(name string) clusterv1.MachinePoolClass {
	class := clusterv1.MachinePoolClass{
		Class: name, Metadata: declaredByClass(name),
		Deletion: clusterv1.MachinePoolClassMachineDeletionSpec{NodeDrainTimeoutSeconds: ptr.To(int32(30))},
	}
	class.Bootstrap.TemplateRef = reference(bootstrapVersion, "KubeadmConfigTemplate", "class")
	class.Infrastructure.TemplateRef = reference(infrastructureVersion, "FakeMachinePoolTemplate", name)
	return class
}

// declaredByClass is what the class declares for one of its sections. The Cluster declares some of it otherwise.
func declaredByClass(section string) clusterv1.ObjectMeta {
	return clusterv1.ObjectMeta{
		Labels: map[string]string{
			"team": "class", "of": section, "goes": "soon", "node.cluster.x-k8s.io/pool": "class", "node.cluster.x-k8s.io/goes": "soon",
		},
		Annotations: map[string]string{
			"note": "class", "node.cluster.x-k8s.io/note": "class", taint.AlwaysAnnotation: "annotated-class=yes:NoSchedule",
		},
	}
}

// declaredByCluster is what the Cluster declares for one of its sections.
func declaredByCluster(section string) clusterv1.ObjectMeta {
	return clusterv1.ObjectMeta{
		Labels: map[string]string{
			"team": "cluster", "node.cluster.x-k8s.io/pool": section, "node-role.kubernetes.io/" + section: "", "goes-too": "soon",
		},
		Annotations: map[string]string{
			"node.cluster.x-k8s.io/note": "cluster", taint.AlwaysAnnotation: "annotated-cluster=yes:PreferNoSchedule",
		},
	}
}

// managedCluster returns a Cluster of the class.
func managedCluster(typed bool) *clusterv1.Cluster {
	cluster := stage.Cluster("fleet", managed)
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}
	topology := &cluster.Spec.Topology
	topology.ClassRef.Name, topology.Version = "class", kubernetesVersion
	topology.ControlPlane = clusterv1.ControlPlaneTopology{
		Metadata: declaredByCluster("leader"), Replicas: ptr.To(int32(1)),
		Deletion: clusterv1.ControlPlaneTopologyMachineDeletionSpec{NodeDrainTimeoutSeconds: ptr.To(int32(20))},
	}
	topology.Workers.MachineDeployments = []clusterv1.MachineDeploymentTopology{{
		Class: "workers", Name: "workers", Metadata: declaredByCluster("workers"), Replicas: ptr.To(int32(1)),
	}}
	for _, class := range []string{"pooled", "bare"} {
		topology.Workers.MachinePools = append(topology.Workers.MachinePools, clusterv1.MachinePoolTopology{
			Class: class, Name: class, Metadata: declaredByCluster(class), Replicas: ptr.To(int32(1)),
		})
	}
	if typed {
		topology.ControlPlane.Taints = stage.Taints(clusterv1.MachineTaintPropagationAlways, "cluster=control-plane:PreferNoSchedule")
		topology.Workers.MachineDeployments[0].Taints = append(
			stage.Taints(clusterv1.MachineTaintPropagationAlways, "cluster=workers:NoSchedule"),
			stage.Taints(clusterv1.MachineTaintPropagationOnInitialization, "booting=yes:PreferNoSchedule")...)
	}
	return cluster
}

func reference(version, kind, name string) clusterv1.ClusterClassTemplateReference {
	return clusterv1.ClusterClassTemplateReference{APIVersion: version, Kind: kind, Name: name}
}

// templateOf returns a template of a provider's objects with this spec.
func templateOf(version, kind, name string, spec map[string]any) *unstructured.Unstructured {
	template := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": spec}}}}
	template.SetAPIVersion(version)
	template.SetKind(kind)
	template.SetNamespace("fleet")
	template.SetName(name)
	return template
}
