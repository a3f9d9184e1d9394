// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Part is a section of a ClusterClass or of a topology: what it declares for the objects of one kind and class.
type Part struct {
	// Name is a topology's own, Class its reference to a section of the ClusterClass, or that section's own name.
	Name, Class string
	Content
	// OfMachines says that a ClusterClass's control plane consists of Machines.
	OfMachines bool
}

// parts are the sections of a ClusterClass or of a topology.
type parts struct {
	controlPlane                     Part
	machineDeployments, machinePools []Part
}

func partOf(name, class string, metadata clusterv1.ObjectMeta, spec clusterv1.MachineSpec) Part {
	return Part{Name: name, Class: class, Content: contentOf(&clusterv1.MachineTemplateSpec{ObjectMeta: metadata, Spec: spec})}
}

func partsOfClass(class *clusterv1.ClusterClass) parts {
	cp := &class.Spec.ControlPlane
	all := parts{controlPlane: partOf("", "", cp.Metadata, specOfControlPlaneClass(cp))}
	all.controlPlane.OfMachines = HasMachines(class)
	for i := range class.Spec.Workers.MachineDeployments {
		s := &class.Spec.Workers.MachineDeployments[i]
		all.machineDeployments = append(all.machineDeployments, partOf("", s.Class, s.Metadata, specOfMachineDeploymentClass(s)))
	}
	for i := range class.Spec.Workers.MachinePools {
		s := &class.Spec.Workers.MachinePools[i]
		all.machinePools = append(all.machinePools, partOf("", s.Class, s.Metadata, specOfMachinePoolClass(s)))
	}
	return all
}

func partsOfTopology(topology *clusterv1.Topology) parts {
	cp := &topology.ControlPlane
	all := parts{controlPlane: partOf("", "", cp.Metadata, specOfControlPlaneTopology(cp))}
	for i := range topology.Workers.MachineDeployments {
		s := &topology.Workers.MachineDeployments[i]
		all.machineDeployments = append(all.machineDeployments, partOf(s.Name, s.Class, s.Metadata, specOfMachineDeploymentTopology(s)))
	}
	for i := range topology.Workers.MachinePools {
		s := &topology.Workers.MachinePools[i]
		all.machinePools = append(all.machinePools, partOf(s.Name, s.Class, s.Metadata, specOfMachinePoolTopology(s)))
	}
	return all
}

// HasMachines reports whether the control planes of a ClusterClass consist of Machines.
func HasMachines(class *clusterv1.ClusterClass) bool {
	return class.Spec.ControlPlane.MachineInfrastructure.TemplateRef.IsDefined()
}

// SectionOf returns what is declared for a control plane, MachineDeployment or MachinePool; nil if the Cluster's topology does not
// manage it.
func SectionOf(cluster *clusterv1.Cluster, class *clusterv1.ClusterClass, object metav1.Object) *Section {
	if !managedBy(cluster, object) {
		return nil
	}
	inTopology, inClass, labels := partsOfTopology(&cluster.Spec.Topology), partsOfClass(class), object.GetLabels()
	switch o := object.(type) {
	case *ControlPlane: // Cluster API creates it before the Cluster refers to it
		if ref := cluster.Spec.ControlPlaneRef; ref.Name != "" && (ref.Name != o.Name || ref.GroupKind() != o.GroupVersionKind().GroupKind()) {
			return nil
		}
		return &Section{Class: inClass.controlPlane, Topology: inTopology.controlPlane, list: controlPlane}
	case *clusterv1.MachineDeployment:
		name := labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel]
		return sectionNamed(name, machineDeployments, inTopology.machineDeployments, inClass.machineDeployments)
	case *clusterv1.MachinePool:
		name := labels[clusterv1.ClusterTopologyMachinePoolNameLabel]
		return sectionNamed(name, machinePools, inTopology.machinePools, inClass.machinePools)
	}
	return nil
}

// managedBy reports whether the object is one that the Cluster's topology manages.
func managedBy(cluster *clusterv1.Cluster, object metav1.Object) bool {
	return cluster.Spec.Topology.IsDefined() && object.GetLabels()[clusterv1.ClusterNameLabel] == cluster.Name &&
		has(object.GetLabels(), clusterv1.ClusterTopologyOwnedLabel)
}

// sectionNamed returns the topology's section of that name with the class's section that it refers to. If either is missing, what
// they declare is not known.
func sectionNamed(name string, list sectionList, topology, class []Part) *Section {
	t := slices.IndexFunc(topology, func(s Part) bool { return name != "" && s.Name == name })
	if t < 0 {
		return nil
	}
	c := slices.IndexFunc(class, func(s Part) bool { return s.Class == topology[t].Class })
	if c < 0 {
		return nil
	}
	return &Section{Class: class[c], Topology: topology[t], list: list}
}
