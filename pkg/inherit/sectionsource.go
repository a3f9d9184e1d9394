// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"fmt"
	"slices"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// SectionList is a field of a topology and of a ClusterClass in which sections are.
type SectionList string

// The fields with the sections for each kind.
const (
	ControlPlanes      SectionList = "controlPlane"
	MachineDeployments SectionList = "machineDeployments"
	MachinePools       SectionList = "machinePools"
)

// path returns the path of a section below the sections of its object. Of a list, it is the one of that name.
func (l SectionList) path(above []string, name string) []string {
	if l == ControlPlanes {
		return append(slices.Clone(above), string(l))
	}
	return append(slices.Clone(above), "workers", fmt.Sprintf("%s[%s]", l, name))
}

// Declarations says what the section declares, and where: in the Cluster, and in the ClusterClass what the Cluster does not
// replace.
func (s Section) Declarations(list SectionList, cluster *capi.Cluster, class *capi.ClusterClass) []Declaration {
	topology, own := list.path([]string{"spec", "topology"}, s.Topology.Name), list.path([]string{"spec"}, s.Class.Class)
	inCluster := Declaration{
		Object:    "Cluster " + cluster.Namespace + "/" + cluster.Name,
		Paths:     capi.MachinePaths(cluster.GroupVersionKind().Version, append(slices.Clone(topology), "metadata"), topology, topology),
		Content:   contentOfSection(s.Topology),
		Annotates: list == MachinePools,
	}
	metadata := append(slices.Clone(own), "metadata")
	if len(s.Class.Template.Labels)+len(s.Class.Template.Annotations) > 0 {
		metadata = append(slices.Clone(own), "template", "metadata")
	}
	inClass := Declaration{
		Object:    "ClusterClass " + class.Namespace + "/" + class.Name,
		Paths:     capi.MachinePaths(class.GroupVersionKind().Version, metadata, own, own),
		Content:   contentOfSection(s.Class),
		Annotates: list == MachinePools,
	}
	if s.Topology.Taints != nil {
		inClass.Taints = nil
	}
	if s.Topology.ReadinessGates != nil {
		inClass.Fields.ReadinessGates = nil
	}
	return []Declaration{inCluster, inClass}
}

func contentOfSection(s capi.Section) Content {
	return Content{
		Labels:      mergeMaps(s.Template.Labels, s.Labels),
		Annotations: mergeMaps(s.Template.Annotations, s.Annotations),
		Taints:      s.Taints,
		Fields:      fieldsOf(s.MachineFields, s.WorkerFields),
	}
}
