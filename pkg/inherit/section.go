// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// SectionOf returns what is declared for a control plane, MachineDeployment or MachinePool; nil if the Cluster's topology does not
// manage it.
func SectionOf(cluster *capi.Cluster, class *capi.ClusterClass, object metav1.Object) *Section {
	if !managedBy(cluster, object) {
		return nil
	}
	topology, labels := cluster.Spec.Topology, object.GetLabels()
	switch o := object.(type) {
	case *capi.ControlPlane: // Cluster API creates it before the Cluster refers to it
		if ref := cluster.Spec.ControlPlaneRef; ref.Name != "" && (ref.Name != o.Name || ref.GroupKind() != o.GroupVersionKind().GroupKind()) {
			return nil
		}
		return &Section{Class: class.Spec.ControlPlane, Topology: topology.ControlPlane, list: controlPlane}
	case *capi.MachineDeployment:
		name := labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel]
		return sectionNamed(name, machineDeployments, topology.Workers.MachineDeployments, class.Spec.Workers.MachineDeployments)
	case *capi.MachinePool:
		name := labels[clusterv1.ClusterTopologyMachinePoolNameLabel]
		return sectionNamed(name, machinePools, topology.Workers.MachinePools, class.Spec.Workers.MachinePools)
	}
	return nil
}

// managedBy reports whether the object is one that the Cluster's topology manages.
func managedBy(cluster *capi.Cluster, object metav1.Object) bool {
	return cluster.Spec.Topology != nil && object.GetLabels()[clusterv1.ClusterNameLabel] == cluster.Name &&
		has(object.GetLabels(), clusterv1.ClusterTopologyOwnedLabel)
}

// sectionNamed returns the topology's section of that name with the class's section that it refers to. If either is missing, what
// they declare is not known.
func sectionNamed(name string, list sectionList, topology, class []capi.Section) *Section {
	t := slices.IndexFunc(topology, func(s capi.Section) bool { return name != "" && s.Name == name })
	if t < 0 {
		return nil
	}
	c := slices.IndexFunc(class, func(s capi.Section) bool { return s.Class == topology[t].Class })
	if c < 0 {
		return nil
	}
	return &Section{Class: class[c], Topology: topology[t], list: list}
}
