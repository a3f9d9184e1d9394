// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"fmt"
	"maps"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// sectionList is a field of a topology and of a ClusterClass in which sections are.
type sectionList string

// The fields with the sections for each kind.
const (
	controlPlane       sectionList = "controlPlane"
	machineDeployments sectionList = "machineDeployments"
	machinePools       sectionList = "machinePools"
)

// classKind is the kind of a class of topologies.
const classKind = "ClusterClass"

// path returns the path of a section below its object's sections; in a list, of the item with that name.
func (l sectionList) path(name string, above ...string) []string {
	if l == controlPlane {
		return append(above, string(l))
	}
	return append(above, "workers", fmt.Sprintf("%s[%s]", l, name))
}

// Declarations says what the section declares, and where: in the Cluster, and in the ClusterClass if the Cluster does not replace
// it.
func (s Section) Declarations(cluster *clusterv1.Cluster, class *clusterv1.ClusterClass) []Declaration {
	inClass := s.Class.Content
	inClass.Annotations = maps.Clone(inClass.Annotations)
	maps.DeleteFunc(inClass.Annotations, func(name, _ string) bool { return has(s.Topology.Annotations, name) })
	if s.Topology.Taints != nil {
		inClass.Taints = nil
	}
	if s.Topology.Fields.ReadinessGates != nil {
		inClass.Fields.ReadinessGates = nil
	}
	return []Declaration{s.list.ofCluster(cluster, s.Topology), s.list.ofClass(class, Part{Class: s.Class.Class, Content: inClass})}
}

// DeclarationsOfCluster says what the topology of a Cluster declares, section by section.
func DeclarationsOfCluster(cluster *clusterv1.Cluster) []Declaration {
	if !cluster.Spec.Topology.IsDefined() {
		return nil
	}
	return declarations(partsOfTopology(&cluster.Spec.Topology), func(l sectionList, s Part) Declaration { return l.ofCluster(cluster, s) })
}

// DeclarationsOfClass says what a ClusterClass declares, section by section.
func DeclarationsOfClass(class *clusterv1.ClusterClass) []Declaration {
	return declarations(partsOfClass(class), func(l sectionList, s Part) Declaration { return l.ofClass(class, s) })
}

func declarations(all parts, of func(sectionList, Part) Declaration) []Declaration {
	declared := []Declaration{of(controlPlane, all.controlPlane)}
	for _, s := range all.machineDeployments {
		declared = append(declared, of(machineDeployments, s))
	}
	for _, s := range all.machinePools {
		declared = append(declared, of(machinePools, s))
	}
	return declared
}

// ofCluster is what a section of a Cluster's topology declares.
func (l sectionList) ofCluster(cluster *clusterv1.Cluster, s Part) Declaration {
	return l.declaration(Ref{"Cluster", cluster}, s.Content, l.path(s.Name, "spec", "topology"))
}

// ofClass is what a section of a ClusterClass declares.
func (l sectionList) ofClass(class *clusterv1.ClusterClass, s Part) Declaration {
	return l.declaration(Ref{classKind, class}, s.Content, l.path(s.Class, "spec"))
}

func (l sectionList) declaration(of Ref, content Content, at []string) Declaration {
	return Declaration{Ref: of, Content: content, Annotates: l == machinePools, Paths: pathsIn(below(at, "metadata"), at)}
}

// Overridden returns what the ClusterClass declares and does not count, because the Cluster's topology declares something else instead.
func (s Section) Overridden() Content {
	class, topology, counts := s.Class.Content, s.Topology.Content, s.declared()
	other := func(in, now map[string]string) func(key string) bool {
		return func(key string) bool { value, ok := now[key]; return !ok || value != in[key] }
	}
	over := Content{
		Labels:      filter(class.Labels, other(class.Labels, counts.Labels)),
		Annotations: filter(class.Annotations, other(class.Annotations, counts.Annotations)),
	}
	if topology.Taints != nil {
		over.Taints = slices.DeleteFunc(slices.Clone(class.Taints), func(t clusterv1.MachineTaint) bool { return slices.Contains(topology.Taints, t) })
	}
	if gates := topology.Fields.ReadinessGates; gates != nil {
		over.Fields.ReadinessGates = slices.DeleteFunc(slices.Clone(class.Fields.ReadinessGates), func(gate clusterv1.MachineReadinessGate) bool {
			return slices.Contains(gates, gate)
		})
	}
	for f, seconds := range class.Fields.Seconds {
		if now := topology.Fields.Seconds[f]; seconds != nil && now != nil && *now != *seconds {
			over.Fields.Seconds[f] = seconds
		}
	}
	return over
}
