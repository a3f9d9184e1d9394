// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// LeftToClusterAPI reports whether Cluster API's Machine controller is about to write everything that would become of a Node: labels and
// annotations that it propagates or that its lists record, taints that it takes away, and what Heirloom adds to any write of the Node,
// which are its records. No new taint is left to it, nor what the Machine does not have yet, nor a Node without its Machine's
// providerID, nor a Node without a record of the Always taints that are declared by annotation: Cluster API knows nothing of those, and
// without the record they would stay when the Machine loses them.
//
// A taint that Heirloom took away first could stay for good: a reconcile that has begun with the Machine as it was puts it back, and then
// no record says that it comes from the Machine.
func (p Policy) LeftToClusterAPI(from NodeSource, node *corev1.Node, result NodeState) bool {
	m, current := from.ahead.machine, OfNode(node)
	if m == nil || m.Spec.ProviderID == "" || m.Spec.ProviderID != node.Spec.ProviderID {
		return false
	}
	recorded := taint.Positions(RecordOf(current).Taints)
	for _, t := range always(from.taints.annotated) {
		if _, known := recorded[taint.IDOf(t)]; !known {
			return false
		}
	}
	gone, only := p.takesAway(current, result)
	if !only {
		return false
	}
	labels := keysLeft{nodeLabel, m.Labels, from.Labels, current.Annotations[clusterv1.LabelsFromMachineAnnotation]}
	annotations := keysLeft{
		nodeAnnotation, m.Annotations, from.Annotations, current.Annotations[clusterv1.AnnotationsFromMachineAnnotation],
	}
	changedLabels := slices.DeleteFunc(changed(current.Labels, result.Labels), func(key string) bool { return key == RecordLabel })
	changedAnnotations := slices.DeleteFunc(changed(current.Annotations, result.Annotations), tracks)
	writes := gone+len(changedLabels)+len(changedAnnotations) > 0 || awaitsClusterAPI(current)
	return writes && labels.all(changedLabels) && annotations.all(changedAnnotations)
}

// keysLeft tells which keys of a Node's map Cluster API writes: those that its rules propagate, if the Machine has them or if the Machine
// will not have them and Cluster API's annotation lists them.
type keysLeft struct {
	byRule        func(key string) bool
	has, declared map[string]string
	listed        string
}

func (k keysLeft) all(changed []string) bool {
	return !slices.ContainsFunc(changed, func(key string) bool {
		removes := !has(k.declared, key) && slices.Contains(splitKeys(k.listed), key)
		return !k.byRule(key) || !has(k.has, key) && !removes
	})
}

// takesAway returns how many taints the Node would lose, and whether all that would become of its taints is that Cluster API takes these
// away: those that its list has, and the one that keeps workload away until it has written the Node.
func (p Policy) takesAway(current, result NodeState) (gone int, only bool) {
	listed, _ := taint.ParseList(current.Annotations[clusterv1.TaintsFromMachineAnnotation])
	byClusterAPI := taint.Positions(listed)
	rest := slices.DeleteFunc(slices.Clone(current.Taints), func(t corev1.Taint) bool {
		_, is := byClusterAPI[taint.IDOf(t)]
		is = is && p.ClusterAPITaints == PropagationEnabled || t.MatchTaint(&clusterv1.NodeUninitializedTaint)
		return is && taint.Find(result.Taints, taint.IDOf(t)) < 0
	})
	return len(current.Taints) - len(rest), (NodeState{Taints: rest}).Equal(NodeState{Taints: result.Taints})
}

// awaitsClusterAPI reports whether Cluster API has yet to write a Node for the first time.
func awaitsClusterAPI(node NodeState) bool {
	return slices.ContainsFunc(node.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&clusterv1.NodeUninitializedTaint) })
}

// changed returns the keys that two maps do not have in common with the same value.
func changed(a, b map[string]string) []string {
	var keys []string
	for key := range maps.Keys(mergeMaps(a, b)) {
		before, had := a[key]
		after, has := b[key]
		if had != has || before != after {
			keys = append(keys, key)
		}
	}
	return keys
}
