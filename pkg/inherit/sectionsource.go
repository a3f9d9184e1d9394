// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"fmt"
	"maps"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
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
func (s Section) Declarations(cluster *capi.Cluster, class *capi.ClusterClass) []Declaration {
	inCluster, inClass := contentOfSection(s.Topology), contentOfSection(s.Class)
	maps.DeleteFunc(inClass.Annotations, func(name, _ string) bool { return has(s.Topology.Annotations, name) })
	if s.Topology.Taints != nil {
		inClass.Taints = nil
	}
	if s.Topology.ReadinessGates != nil {
		inClass.Fields.ReadinessGates = nil
	}
	return []Declaration{s.list.ofCluster(cluster, s.Topology, inCluster), s.list.ofClass(class, s.Class, inClass)}
}

// DeclarationsOfCluster says what the topology of a Cluster declares, section by section.
func DeclarationsOfCluster(cluster *capi.Cluster) []Declaration {
	if cluster.Spec.Topology == nil {
		return nil
	}
	return declarations(cluster.Spec.Topology.Sections, func(l sectionList, s capi.Section) Declaration {
		return l.ofCluster(cluster, s, contentOfSection(s))
	})
}

// DeclarationsOfClass says what a ClusterClass declares, section by section.
func DeclarationsOfClass(class *capi.ClusterClass) []Declaration {
	return declarations(class.Spec, func(l sectionList, s capi.Section) Declaration { return l.ofClass(class, s, contentOfSection(s)) })
}

func declarations(all capi.Sections, of func(sectionList, capi.Section) Declaration) []Declaration {
	declared := []Declaration{of(controlPlane, all.ControlPlane)}
	for _, s := range all.Workers.MachineDeployments {
		declared = append(declared, of(machineDeployments, s))
	}
	for _, s := range all.Workers.MachinePools {
		declared = append(declared, of(machinePools, s))
	}
	return declared
}

// ofCluster is what a section of a Cluster's topology declares.
func (l sectionList) ofCluster(cluster *capi.Cluster, s capi.Section, content Content) Declaration {
	at := l.path(s.Name, "spec", "topology")
	return Declaration{
		Ref: Ref{"Cluster", cluster}, Content: content, Annotates: l == machinePools,
		Paths: capi.MachinePaths(cluster.GroupVersionKind().Version, append(slices.Clone(at), "metadata"), at, at),
	}
}

// ofClass is what a section of a ClusterClass declares. v1beta1 has the metadata of workers in a template.
func (l sectionList) ofClass(class *capi.ClusterClass, s capi.Section, content Content) Declaration {
	at := l.path(s.Class, "spec")
	metadata := at
	if len(s.Template.Labels)+len(s.Template.Annotations) > 0 {
		metadata = append(slices.Clone(at), "template")
	}
	return Declaration{
		Ref: Ref{classKind, class}, Content: content, Annotates: l == machinePools,
		Paths: capi.MachinePaths(class.GroupVersionKind().Version, append(slices.Clone(metadata), "metadata"), at, at),
	}
}

func contentOfSection(s capi.Section) Content {
	return Content{
		Labels:      mergeMaps(s.Template.Labels, s.Labels),
		Annotations: mergeMaps(s.Template.Annotations, s.Annotations),
		Taints:      s.Taints,
		Fields:      fieldsOf(s.MachineFields, s.WorkerFields),
	}
}

// Overridden returns what the ClusterClass declares and does not count, because the Cluster's topology declares something else instead.
func (s Section) Overridden() Content {
	class, topology, counts := contentOfSection(s.Class), contentOfSection(s.Topology), s.declared()
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
