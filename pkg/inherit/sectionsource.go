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
	topology, own := s.list.path(s.Topology.Name, "spec", "topology"), s.list.path(s.Class.Class, "spec")
	metadata := own
	if len(s.Class.Template.Labels)+len(s.Class.Template.Annotations) > 0 {
		metadata = append(slices.Clone(own), "template")
	}
	return []Declaration{
		{
			Ref: Ref{"Cluster", cluster}, Content: inCluster, Annotates: s.list == machinePools,
			Paths: capi.MachinePaths(cluster.GroupVersionKind().Version, append(slices.Clone(topology), "metadata"), topology, topology),
		},
		{
			Ref: Ref{"ClusterClass", class}, Content: inClass, Annotates: s.list == machinePools,
			Paths: capi.MachinePaths(class.GroupVersionKind().Version, append(slices.Clone(metadata), "metadata"), own, own),
		},
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
