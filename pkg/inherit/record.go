// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// The record of what a kubelet may not take away, which it cannot change unnoticed (docs/design.md §2).
const (
	// RecordAnnotation lists the restricted labels and the Always taints that came from the Machine: keys, a semicolon, taints.
	RecordAnnotation = "heirloom.dev/record-from-machine"
	// RecordLabel has a digest of that annotation. NodeRestriction lets no kubelet set, change or remove it. So a Node with the label has
	// been written by Heirloom since it registered.
	RecordLabel = "heirloom.node-restriction.kubernetes.io/record"
)

// Record is what a Node has from its Machine and its kubelet may not take away.
type Record struct {
	Labels []string       // keys of restricted labels
	Taints []corev1.Taint // Always taints
}

// RecordOf returns the record of a Node. It is empty if the Node has none, or if its kubelet has changed it.
func RecordOf(node NodeState) Record {
	labels, taints, _ := strings.Cut(ValidRecord(node), ";")
	parsed, _ := taint.ParseList(taints) // Heirloom wrote it
	return Record{Labels: taint.Split(labels), Taints: parsed}
}

// ValidRecord returns the text of a Node's record if its label fits it.
func ValidRecord(node NodeState) string {
	if text := node.Annotations[RecordAnnotation]; node.Labels[RecordLabel] == digest(text) {
		return text
	}
	return ""
}

// Restored returns the Node with the record that it is known to have had, if its kubelet has changed it since: the label fits it.
func Restored(node NodeState, record string) NodeState {
	if record == node.Annotations[RecordAnnotation] || node.Labels[RecordLabel] != digest(record) {
		return node
	}
	node.Annotations = mergeMaps(node.Annotations, nil)
	setOrDelete(node.Annotations, RecordAnnotation, record)
	return node
}

// Recorded returns the Node with this record in place of its own.
func (r Record) Recorded(node NodeState) NodeState {
	text := ""
	if len(r.Labels)+len(r.Taints) > 0 {
		text = taint.Join(slices.Clone(r.Labels)) + ";" + taint.FormatList(r.Taints)
	}
	node.Labels, node.Annotations = mergeMaps(node.Labels, nil), mergeMaps(node.Annotations, nil)
	setOrDelete(node.Annotations, RecordAnnotation, text)
	node.Labels[RecordLabel] = digest(text)
	return node
}

// digest is short enough for a label's value. A forger needs a second text with the digest that is there already.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// initialized reports whether the Node has had its Initialize taints: Cluster API's annotation exists, even empty. The kubelet of a new
// Node may have written it, so there it counts only beside the record's label (docs/design.md §3). While these taints wait, it does not.
func (s NodeState) initialized() bool {
	return has(s.Annotations, clusterv1.TaintsFromMachineAnnotation) && (has(s.Labels, RecordLabel) || !s.New) &&
		!has(s.Labels, InitializationLabel)
}

// marks reports whether a label of a Node is Heirloom's own.
func marks(key string) bool {
	return key == RecordLabel || key == InitializationLabel || key == SoftenedLabel
}

// recorded returns the state of a Node with a record of what is there from its Machine, as one that does not wait (NodeHolding).
func (n *nodeSync) recorded(state NodeState) NodeState {
	if n.labelledByClusterAPI(RecordLabel) {
		return state
	}
	r := Record{Taints: always(n.from.taints())}
	for key, value := range n.from.Labels {
		if now, there := state.Labels[key]; there && now == value && restricted(key) && n.policy.notOnNode(labelKey, key) == "" {
			r.Labels = append(r.Labels, key)
		}
	}
	state = r.Recorded(state)
	for _, mark := range []string{InitializationLabel, SoftenedLabel} {
		if !n.labelledByClusterAPI(mark) {
			delete(state.Labels, mark)
		}
	}
	return state
}

// labelledByClusterAPI reports whether the Node has one of our own labels as its Machine has it. Cluster API writes to the Node whatever
// somebody labels a Machine with in this domain, and two must not fight over a label.
func (n *nodeSync) labelledByClusterAPI(mark string) bool {
	value, labelled := n.from.Labels[mark]
	return labelled && n.current.Labels[mark] == value
}

// Release is the state of a Node once Heirloom has given up for good what it tracks there: without the keys and taints that its own
// annotations list, unless keepValues keeps them, without these annotations, and without the guard taint that it added.
//
// Cluster API manages what its own annotations list. Taints among that are then listed in the only form that it can read. Keys that its
// rules propagate as well are added to its list, so that it removes them as soon as the Machine no longer has them.
func Release(current NodeState, keepValues bool) NodeState {
	result := NodeState{Labels: maps.Clone(current.Labels), Annotations: maps.Clone(current.Annotations), Taints: current.Taints}
	listed, record := current.Annotations, RecordOf(current)
	release(result.Annotations, result.Labels, labelKey, keepValues, func(key string) bool { // a kubelet may have added restricted keys
		return !restricted(key) || slices.Contains(record.Labels, key)
	})
	release(result.Annotations, result.Annotations, annotationKey, keepValues, func(string) bool { return true })
	if !keepValues {
		byClusterAPI, ours := listedTaints(listed)
		theirs, recorded := taint.ByID(byClusterAPI), taint.ByID(record.Taints) // the lists may be a kubelet's
		ours = slices.DeleteFunc(ours, func(t corev1.Taint) bool { return has(theirs, taint.IDOf(t)) || !has(recorded, taint.IDOf(t)) })
		result.Taints = taint.Sync(result.Taints, nil, ours, true)
	}
	if has(listed, UninitializedAnnotation) {
		result.Taints = taint.Remove(result.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))
	}
	maps.DeleteFunc(result.Annotations, func(key, _ string) bool { return tracks(key) && domain(key) == "heirloom.dev" })
	maps.DeleteFunc(result.Labels, func(key, _ string) bool { return marks(key) })
	if list, ok := listed[clusterv1.TaintsFromMachineAnnotation]; ok {
		taints, _ := taint.ParseList(list) // a broken entry goes, as whenever this annotation is written
		result.Annotations[clusterv1.TaintsFromMachineAnnotation] = taint.FormatIDs(taints)
	}
	return result
}

// release gives up the keys of a map of a Node that we list and Cluster API does not: Cluster API's list gets those that it propagates,
// and the others go, unless their values are to stay.
func release(annotations, values map[string]string, what string, keepValues bool, believed func(key string) bool) {
	lists := trackedBy[what]
	theirs := taint.Split(annotations[lists[0]])
	for _, key := range taint.Split(annotations[lists[1]]) {
		switch {
		case slices.Contains(theirs, key) || !has(values, key) || !believed(key):
		case byRule(what, key):
			theirs = append(theirs, key)
			annotations[lists[0]] = taint.Join(theirs)
		case !keepValues:
			delete(values, key)
		}
	}
}
