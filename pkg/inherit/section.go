// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// SectionOfControlPlane returns what is declared for the control plane, or nil if the Cluster's topology does not manage it.
// Cluster API creates a control plane before the Cluster refers to it.
func SectionOfControlPlane(cluster *capi.Cluster, class *capi.ClusterClass, cp *capi.ControlPlane) *Section {
	if !managedBy(cluster, cp) {
		return nil
	}
	if ref := cluster.Spec.ControlPlaneRef; ref.Name != "" && (ref.Name != cp.Name || ref.GroupKind() != cp.GroupVersionKind().GroupKind()) {
		return nil
	}
	return &Section{Class: class.Spec.ControlPlane, Topology: cluster.Spec.Topology.ControlPlane}
}

// SectionOfMachineDeployment returns what is declared for the MachineDeployment, or nil if no topology manages it.
func SectionOfMachineDeployment(cluster *capi.Cluster, class *capi.ClusterClass, md *capi.MachineDeployment) *Section {
	if !managedBy(cluster, md) {
		return nil
	}
	return sectionNamed(md.Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel],
		cluster.Spec.Topology.Workers.MachineDeployments, class.Spec.Workers.MachineDeployments)
}

// SectionOfMachinePool returns what is declared for the MachinePool, or nil if no topology manages it.
func SectionOfMachinePool(cluster *capi.Cluster, class *capi.ClusterClass, mp *capi.MachinePool) *Section {
	if !managedBy(cluster, mp) {
		return nil
	}
	return sectionNamed(mp.Labels[clusterv1.ClusterTopologyMachinePoolNameLabel],
		cluster.Spec.Topology.Workers.MachinePools, class.Spec.Workers.MachinePools)
}

// managedBy reports whether the object is one that the Cluster's topology manages.
func managedBy(cluster *capi.Cluster, object metav1.Object) bool {
	return cluster.Spec.Topology != nil && object.GetLabels()[clusterv1.ClusterNameLabel] == cluster.Name &&
		has(object.GetLabels(), clusterv1.ClusterTopologyOwnedLabel)
}

// sectionNamed returns the topology's section of that name with the section of the class that it refers to. Without both
// it is not known what is declared.
func sectionNamed(name string, topology, class []capi.Section) *Section {
	t := slices.IndexFunc(topology, func(s capi.Section) bool { return name != "" && s.Name == name })
	if t < 0 {
		return nil
	}
	c := slices.IndexFunc(class, func(s capi.Section) bool { return s.Class == topology[t].Class })
	if c < 0 {
		return nil
	}
	return &Section{Class: class[c], Topology: topology[t]}
}
