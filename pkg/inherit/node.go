// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Tracking annotations for entries that only Heirloom propagates to a Node, in addition to Cluster API's (docs/design.md §2).
const (
	LabelsFromMachineAnnotation      = "heirloom.dev/labels-from-machine"
	AnnotationsFromMachineAnnotation = "heirloom.dev/annotations-from-machine"
	TaintsFromMachineAnnotation      = "heirloom.dev/taints-from-machine"
)

// UninitializedAnnotation is on a Node to which Heirloom added the taint node.cluster.x-k8s.io/uninitialized. Heirloom removes the taint
// only from these Nodes.
const UninitializedAnnotation = "heirloom.dev/uninitialized"

// registration is the time for which a Node counts as new. Pods on a new Node have only just started.
const registration = 10 * time.Minute

//nolint:gochecknoglobals // tables that nothing changes
var (
	// TrackingAnnotations are the annotations of a Node that record the entries from the Machine. They do not count in the create by a
	// kubelet.
	TrackingAnnotations = []string{
		clusterv1.LabelsFromMachineAnnotation, clusterv1.AnnotationsFromMachineAnnotation, clusterv1.TaintsFromMachineAnnotation,
		LabelsFromMachineAnnotation, AnnotationsFromMachineAnnotation, TaintsFromMachineAnnotation, UninitializedAnnotation, RecordAnnotation,
		MatchedByAddressAnnotation,
	}
	// trackedBy has the annotations that list inherited entries: Cluster API's annotation and our own.
	trackedBy = map[string][2]string{
		labelKey:      {clusterv1.LabelsFromMachineAnnotation, LabelsFromMachineAnnotation},
		annotationKey: {clusterv1.AnnotationsFromMachineAnnotation, AnnotationsFromMachineAnnotation},
		taintKey:      {clusterv1.TaintsFromMachineAnnotation, TaintsFromMachineAnnotation},
	}
)

func tracks(annotation string) bool { return slices.Contains(TrackingAnnotations, annotation) }

// NodeState is the part of a Node that can be inherited.
type NodeState struct {
	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint
}

// OfNode returns the inheritable state of a Node.
func OfNode(node *corev1.Node) NodeState {
	return NodeState{Labels: node.Labels, Annotations: node.Annotations, Taints: node.Spec.Taints}
}

// Equal reports whether two states are stored identically.
func (s NodeState) Equal(other NodeState) bool {
	return maps.Equal(s.Labels, other.Labels) && maps.Equal(s.Annotations, other.Annotations) &&
		slices.EqualFunc(s.Taints, other.Taints, func(a, b corev1.Taint) bool { return taint.IDOf(a) == taint.IDOf(b) && a.Value == b.Value })
}

// Lists returns the keys that a tracking annotation lists; for taints, "<key>:<effect>".
func (s NodeState) Lists(what, annotation string) sets.Set[string] {
	if what != taintKey {
		return keySet(s.Annotations[annotation])
	}
	taints, _ := taint.ParseList(s.Annotations[annotation]) // BrokenTracking reports invalid entries
	return keySet(taint.FormatIDs(taints))
}

// Node is a Node, read once for everything that a plan asks about it.
type Node struct {
	NodeState
	Object *corev1.Node
	// Record is the valid record of the Node.
	Record Record

	now time.Time
	// recorded says that Heirloom has written the Node since it registered: no kubelet can set the label.
	recorded bool
	// keys and taints are the entries that the annotations of Cluster API (0) and our own (1) list.
	keys   map[string][2]sets.Set[string]
	taints [2][]corev1.Taint
}

// ReadNode reads a Node. It skips invalid entries in tracking annotations, and the next write removes them.
func ReadNode(node *corev1.Node, now time.Time) Node {
	n := Node{NodeState: OfNode(node), Object: node, now: now, recorded: has(node.Labels, RecordLabel), keys: map[string][2]sets.Set[string]{}}
	n.Record = RecordOf(n.NodeState)
	for _, what := range []string{labelKey, annotationKey} {
		n.keys[what] = [2]sets.Set[string]{keySet(node.Annotations[trackedBy[what][0]]), keySet(node.Annotations[trackedBy[what][1]])}
	}
	for by, name := range trackedBy[taintKey] {
		n.taints[by], _ = taint.ParseList(node.Annotations[name])
	}
	return n
}

// Restored returns the Node with the record that it is known to have had, if its kubelet has changed the record since: the label still
// matches the known record.
func (n Node) Restored(record string) Node {
	if n.Labels[RecordLabel] == digest(record) {
		n.Record = parseRecord(record)
	}
	return n
}

// Written returns the Node after a write that gave it this state.
func (n Node) Written(state NodeState) Node {
	written := *n.Object // other fields are shared and not changed
	written.Labels, written.Annotations, written.Spec.Taints = state.Labels, state.Annotations, state.Taints
	return ReadNode(&written, n.now)
}

// unwritten returns the Node as if only its kubelet had written it: the kubelet may have written the tracking annotations.
func (n Node) unwritten() Node {
	n.Annotations = filter(n.Annotations, func(key string) bool { return !tracks(key) })
	n.Record, n.recorded, n.keys, n.taints = Record{}, false, nil, [2][]corev1.Taint{}
	return n
}

// isNew reports whether the Node has just registered, by the creation time from its API server. A Node without this time is being created.
func (n Node) isNew() bool {
	created := n.Object.CreationTimestamp
	return created.IsZero() || n.now.Sub(created.Time) < registration
}

// Registering reports whether a Node is new, or Cluster API has not written it yet.
func (n Node) Registering() bool { return n.isNew() || isUninitialized(n.Taints) }

// isUninitialized reports whether Cluster API has yet to write a Node with these taints for the first time.
func isUninitialized(taints []corev1.Taint) bool {
	return taint.Find(taints, taint.IDOf(clusterv1.NodeUninitializedTaint)) >= 0
}

// LabelsRead returns the labels of a Node that the rules read: labels that they may propagate or have propagated. A kubelet and a cloud
// provider write a dozen others. The time is linear in the size of the Node, because a kubelet and its API server can write anything.
func (p Policy) LabelsRead(node *corev1.Node) map[string]string {
	recorded := sets.New[string]()
	for _, name := range TrackingAnnotations {
		if list := node.Annotations[name]; len(list) <= mostBytes {
			recorded.Insert(strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(",; ", r) })...)
		}
	}
	return filter(node.Labels, func(key string) bool {
		return marks(key) || recorded.Has(key) || p.notOnNode(labelKey, key) == "" || p.mayBeNamed(key) || slices.ContainsFunc(p.Facts, func(f Fact) bool { return f.Label == key })
	})
}

func keySet(list string) sets.Set[string] {
	return sets.New(taint.Split(list)...)
}
