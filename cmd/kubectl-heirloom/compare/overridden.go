// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"maps"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Overridden returns the declarations of the ClusterClass that do not count, because the Cluster's topology has other declarations instead.
func Overridden(s inherit.Section) inherit.Content {
	class, topology := s.Class.Content, s.Topology.Content
	replaced := func(class, topology map[string]string) map[string]string {
		over := maps.Clone(class)
		maps.DeleteFunc(over, func(key, value string) bool { now, declared := topology[key]; return !declared || now == value })
		return over
	}
	over := inherit.Content{Labels: replaced(class.Labels, topology.Labels), Annotations: replaced(class.Annotations, topology.Annotations)}
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
