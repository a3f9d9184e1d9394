// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const (
	// format is the version of the encoding, which the package comment describes.
	format    = "1"
	formatKey = "format"
	// partKey is there where the parameters are in several parts.
	partKey = "part"

	machinePrefix, indexPrefix, contentPrefix = "m.", "i.", "c."

	// ending matches the last one or two characters of those that a data key may have. The policy has it too.
	ending = `[-._a-zA-Z0-9]{1,2}$`

	// guardLine is the first line of a content with the guard.
	guardLine = "guard"

	// kubeletsShare is how much of the room for annotations is left to the kubelet and to others.
	kubeletsShare = 32 << 10
)

// contentOf encodes what a Node gets from its Machine at its registration. What the Machine does not have yet is listed in Heirloom's
// annotations, as the webhook and the loop do: Cluster API would remove what its own list has and the Machine does not
// (docs/design.md §5). If the Machine's annotations leave no room for those of the kubelet, which share is as long as, they are left
// out, because an API server would refuse the Node.
func contentOf(m inherit.Machine, rules inherit.Policy, share string) string {
	const kubelets = "" // which is no annotation's key
	room := map[string]string{kubelets: share}
	// What is left out is reported where the Machine itself, or later its Node, is reconciled.
	state, _ := rules.Node(inherit.SourceOfMachine(m.Effective).AheadOf(m.Actual), inherit.NodeState{Annotations: room}, inherit.Kubelet)
	delete(state.Annotations, kubelets)
	lines := []string{"", joinMap(state.Labels), ""}
	taints := state.Taints
	if _, guarded := state.Annotations[inherit.UninitializedAnnotation]; guarded {
		lines[0] = guardLine
		taints = taint.Remove(taints, taint.IDOf(clusterv1.NodeUninitializedTaint))
		delete(state.Annotations, inherit.UninitializedAnnotation)
	}
	lines[2] = joinTaints(taints)
	escape := strings.NewReplacer("%", "%25", "\n", "%0A")
	for _, key := range slices.Sorted(maps.Keys(state.Annotations)) {
		lines = append(lines, key+"="+escape.Replace(state.Annotations[key]))
	}
	return strings.Join(lines, "\n")
}

func joinMap(m map[string]string) string {
	pairs := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, key+"="+m[key])
	}
	return strings.Join(pairs, ",")
}

// joinTaints keeps the order, in which the taints go to the Node. There is always an equals sign, for the policy's sake.
func joinTaints(taints []corev1.Taint) string {
	all := make([]string, 0, len(taints))
	for _, t := range taints {
		all = append(all, t.Key+"="+t.Value+":"+string(t.Effect))
	}
	return strings.Join(all, ",")
}

// machineLines encodes the number of a Machine's content, and everything by which the Machine is found.
func machineLines(m *clusterv1.Machine, content string) string {
	return strings.Join(append([]string{content, m.Spec.ProviderID, m.Status.NodeRef.Name}, namesOf(m)...), "\n")
}

// namesOf returns the names and addresses of a Machine, each once.
func namesOf(m *clusterv1.Machine) []string {
	names := inherit.MachineNames(m)
	slices.Sort(names)
	return slices.Compact(names)
}

// findable reports whether a Node can match this Machine. No Node has a line break in what it is found by.
func findable(m *clusterv1.Machine) bool {
	keys := keysOf(m)
	return len(keys) > 0 && !slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(key, "\n") })
}

// keysOf returns everything by which a Node can match this Machine.
func keysOf(m *clusterv1.Machine) []string {
	keys := append([]string{m.Spec.ProviderID, m.Status.NodeRef.Name}, namesOf(m)...)
	return slices.DeleteFunc(keys, func(key string) bool { return key == "" })
}

// indexesOf returns the data keys under which the Machine is looked up, each once.
func indexesOf(m *clusterv1.Machine, ending *regexp.Regexp) []string {
	var indexes []string
	for _, key := range keysOf(m) {
		first, _, _ := strings.Cut(key, ".")
		indexes = append(indexes, indexPrefix+endOf(key, ending)+"."+endOf(first, ending))
	}
	slices.Sort(indexes)
	return slices.Compact(indexes)
}

// endOf returns what ending matches. It is given no more than can match, since it would try every byte before that, too.
func endOf(name string, ending *regexp.Regexp) string {
	return ending.FindString(name[max(0, len(name)-2):])
}
