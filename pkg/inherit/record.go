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

// The record of entries that a kubelet may not remove, which the kubelet cannot change unnoticed (docs/design.md §2).
const (
	// RecordAnnotation lists the restricted labels and the Always taints that came from the Machine: keys, a semicolon, taints.
	RecordAnnotation = "heirloom.dev/record-from-machine"
	// RecordLabel has a digest of RecordAnnotation. NodeRestriction lets no kubelet set, change or remove it. So Heirloom has written a
	// Node with the label since the Node registered.
	RecordLabel = "heirloom.node-restriction.kubernetes.io/record"
)

// Record lists the entries that a Node has from its Machine and that its kubelet may not remove.
type Record struct {
	Labels []string       // keys of restricted labels
	Taints []corev1.Taint // Always taints
}

// RecordOf returns the record of a Node. It is empty if the Node has none, or if its kubelet has changed it.
func RecordOf(node NodeState) Record {
	labels, taints, _ := strings.Cut(ValidRecord(node), ";")
	parsed, _ := taint.ParseList(taints) // Heirloom wrote the list
	return Record{Labels: taint.Split(labels), Taints: parsed}
}

// ValidRecord returns the text of a Node's record, or "" if the Node's label does not match it.
func ValidRecord(node NodeState) string {
	if text := node.Annotations[RecordAnnotation]; node.Labels[RecordLabel] == digest(text) {
		return text
	}
	return ""
}

// Restored returns the Node with the record that it is known to have had, if its kubelet has changed the record since: the label still
// matches the known record.
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

// digest returns a hash of a record that fits into the value of a label. A forger needs a second text with the digest that the label
// already has.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// initialized reports whether the Node has had its OnInitialization taints: Cluster API's annotation exists, even if it is empty. The kubelet of
// a new Node may have written the annotation, so on a new Node it counts only together with RecordLabel (docs/design.md §3). While the
// OnInitialization taints wait, it does not count.
func (s NodeState) initialized() bool {
	return has(s.Annotations, clusterv1.TaintsFromMachineAnnotation) && (has(s.Labels, RecordLabel) || !s.New) &&
		!has(s.Labels, InitializationLabel)
}

// marks reports whether a label of a Node is Heirloom's own.
func marks(key string) bool {
	return key == RecordLabel || key == InitializationLabel || key == SoftenedLabel
}

// recorded returns the state with a record of the entries that the Node has from its Machine, and without the labels of a Node that waits
// (NodeHolding adds them).
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

// labelledByClusterAPI reports whether the Node has one of our own labels with the value of its Machine. Cluster API propagates every label
// of a Machine in this domain to the Node, and Heirloom must not fight with Cluster API over a label.
func (n *nodeSync) labelledByClusterAPI(mark string) bool {
	value, labelled := n.from.Labels[mark]
	return labelled && n.current.Labels[mark] == value
}

// Release returns the state of a Node after Heirloom has given up its tracked entries for good: without the keys and taints that Heirloom's
// annotations list, unless keepValues keeps them, without these annotations, and without the guard taint that Heirloom added.
//
// Cluster API continues to manage the entries that its own annotations list. Taints among these are then listed in the only form that
// Cluster API can read. Keys that its rules also propagate are added to its list, so that it removes them as soon as the Machine no longer
// has them.
func Release(current NodeState, keepValues bool) NodeState {
	result := NodeState{Labels: maps.Clone(current.Labels), Annotations: maps.Clone(current.Annotations), Taints: current.Taints}
	listed, record := current.Annotations, RecordOf(current)
	release(result.Annotations, result.Labels, labelKey, keepValues, func(key string) bool { // a kubelet may have added restricted keys
		return !restricted(key) || slices.Contains(record.Labels, key)
	})
	release(result.Annotations, result.Annotations, annotationKey, keepValues, func(string) bool { return true })
	if !keepValues {
		byClusterAPI, ours := listedTaints(listed)
		theirs, recorded := taint.ByID(byClusterAPI), taint.ByID(record.Taints) // a kubelet may have written the lists
		ours = slices.DeleteFunc(ours, func(t corev1.Taint) bool { return has(theirs, taint.IDOf(t)) || !has(recorded, taint.IDOf(t)) })
		result.Taints = taint.Sync(result.Taints, nil, ours, true)
	}
	if has(listed, UninitializedAnnotation) {
		result.Taints = taint.Remove(result.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))
	}
	maps.DeleteFunc(result.Annotations, func(key, _ string) bool { return tracks(key) && domain(key) == "heirloom.dev" })
	maps.DeleteFunc(result.Labels, func(key, _ string) bool { return marks(key) })
	if list, ok := listed[clusterv1.TaintsFromMachineAnnotation]; ok {
		taints, _ := taint.ParseList(list) // an invalid entry is removed, as in every write of this annotation
		result.Annotations[clusterv1.TaintsFromMachineAnnotation] = taint.FormatIDs(taints)
	}
	return result
}

// release gives up the keys of a map of a Node that our annotation lists and Cluster API's annotation does not list. Keys that Cluster API
// propagates are added to its list; other keys are removed, unless their values are to stay.
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
