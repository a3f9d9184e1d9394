// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Declare reports whether the ClusterClass and whether the Cluster's topology declare one of these taints, by type or by
// annotation. What the topology replaces the class does not declare.
func (s Section) Declare(ids []taint.ID) (class, topology bool) {
	ofClass := mergeMaps(s.Class.Template.Annotations, s.Class.Annotations)
	maps.DeleteFunc(ofClass, func(name, _ string) bool { return has(s.Topology.Annotations, name) })
	typed := s.Class.Taints
	if s.Topology.Taints != nil {
		typed = nil
	}
	return declare(typed, ofClass, ids), declare(s.Topology.Taints, s.Topology.Annotations, ids)
}

// TopologyManages reports whether the control plane is one that the Cluster's topology manages. What such a control plane
// declares beyond its section comes from the template that its ClusterClass names.
func TopologyManages(cluster *capi.Cluster, cp *capi.ControlPlane) bool {
	return managedBy(cluster, cp)
}

func declare(typed []clusterv1.MachineTaint, annotations map[string]string, ids []taint.ID) bool {
	annotated, _ := taint.FromAnnotations(annotations) // what cannot be read reaches nobody
	return slices.ContainsFunc(slices.Concat(typed, annotated), func(t clusterv1.MachineTaint) bool {
		return slices.Contains(ids, taint.MachineID(t))
	})
}
