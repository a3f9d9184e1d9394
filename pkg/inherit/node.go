// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Writer is the writer of a Node. It decides what may be injected in that write (docs/design.md §4).
type Writer bool

const (
	// Kubelet creates its own Node, under NodeRestriction.
	Kubelet Writer = true
	// Privileged is every other writer: Cluster API, the resync loop, an administrator.
	Privileged Writer = false
)

// NodeState is the part of a Node that is inherited.
type NodeState struct {
	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint
	// New says that the Node has just registered, as its API server says.
	New bool
}

// OfNode returns the inheritable state of a Node.
func OfNode(node *corev1.Node) NodeState {
	created := node.CreationTimestamp
	return NodeState{
		Labels: node.Labels, Annotations: node.Annotations, Taints: node.Spec.Taints,
		New: !created.IsZero() && time.Since(created.Time) < registration,
	}
}

// Equal reports whether two states would be stored as the same.
func (s NodeState) Equal(other NodeState) bool {
	return maps.Equal(s.Labels, other.Labels) && maps.Equal(s.Annotations, other.Annotations) &&
		slices.EqualFunc(s.Taints, other.Taints, func(a, b corev1.Taint) bool {
			return taint.IDOf(a) == taint.IDOf(b) && a.Value == b.Value
		})
}

// Node is rules 11, 12 and 13: the state of a Node after it has inherited in a write by writer. The error lists what had to be left
// out; the state is right without it.
func (p Policy) Node(from NodeSource, current NodeState, writer Writer) (NodeState, error) {
	n := nodeSync{policy: p, from: from, claimed: current.Annotations, current: writer.believed(current), writer: writer}
	n.record = RecordOf(n.current)
	metadata, metadataErr := n.metadata()
	result, err := n.completed(metadata), errors.Join(metadataErr, from.problems)
	size := tooLarge(n.current, result)
	if size == nil {
		return result, err
	}
	err = errors.Join(err, fmt.Errorf("labels and annotations: a Node has no room for all of them: %w", size))
	result = n.completed(NodeState{Labels: maps.Clone(n.current.Labels), Annotations: maps.Clone(n.current.Annotations)})
	if tooLarge(n.current, result) != nil {
		return n.current, err
	}
	return result, err
}

// believed returns the Node without what a kubelet that registers cannot know.
func (w Writer) believed(node NodeState) NodeState {
	if w == Kubelet {
		node.Annotations = filter(node.Annotations, func(key string) bool { return !tracks(key) })
	}
	return node
}

// nodeSync is one write of a Node, with what is known of it and of what it inherits from.
type nodeSync struct {
	policy Policy
	from   NodeSource
	// claimed are the annotations that a kubelet registers with; current is the Node without those that a kubelet cannot know.
	claimed map[string]string
	current NodeState
	// record is what came from the Machine before.
	record Record
	writer Writer
}

// completed adds the rest to a state with its metadata: taints, the guard, and the record, which a kubelet cannot write.
func (n nodeSync) completed(metadata NodeState) NodeState {
	result := n.guard(n.withTaints(metadata))
	if n.writer == Privileged {
		result = n.recorded(result)
	}
	result.New = n.current.New
	return result
}

// metadata is rules 11 and 12. The error lists what no Node can carry, which is left out.
func (n nodeSync) metadata() (result NodeState, err error) {
	from, current := n.from, n.current
	labels := mapSync{
		current: current.Labels, declared: from.Labels, recorded: sets.New(n.record.Labels...), vouches: n.record.vouches(),
		byRule: nodeLabel, byOperator: n.policy.additionalLabel, ahead: from.ahead.label,
		rules:    current.Annotations[clusterv1.LabelsFromMachineAnnotation],
		operator: current.Annotations[LabelsFromMachineAnnotation],
	}
	noLabels, labelsErr := notOfNode(labelKey, from.Labels, labels.brings)
	labels.withhold = func(key string) bool { return noLabels.Has(key) || n.writer == Kubelet && restricted(key) }
	annotations := mapSync{
		current: current.Annotations, declared: from.Annotations, vouches: anything,
		byRule: nodeAnnotation, byOperator: n.policy.additionalAnnotation, ahead: from.ahead.annotation,
		rules:    current.Annotations[clusterv1.AnnotationsFromMachineAnnotation],
		operator: current.Annotations[AnnotationsFromMachineAnnotation],
	}
	noAnnotations, annotationsErr := notOfNode(annotationKey, from.Annotations, annotations.brings)
	annotations.withhold = noAnnotations.Has

	var labelKeys, extraLabels, annotationKeys, extraAnnotations string
	result.Labels, labelKeys, extraLabels = labels.sync()
	result.Annotations, annotationKeys, extraAnnotations = annotations.sync()
	setTracking(result.Annotations, clusterv1.LabelsFromMachineAnnotation, labelKeys)
	setOwnTracking(result.Annotations, LabelsFromMachineAnnotation, extraLabels)
	setTracking(result.Annotations, clusterv1.AnnotationsFromMachineAnnotation, annotationKeys)
	setOwnTracking(result.Annotations, AnnotationsFromMachineAnnotation, extraAnnotations)
	setOwnTracking(result.Annotations, MatchedByAddressAnnotation, from.matched)
	return result, errors.Join(labelsErr, annotationsErr)
}

// withTaints is rule 13: result with the taints, and with the annotations that track them.
func (n nodeSync) withTaints(result NodeState) NodeState {
	p, current := n.policy, n.current
	result.Taints = taint.Sync(current.Taints, n.from.taints.all(), n.record.Taints, current.initialized())
	if result.Annotations == nil {
		result.Annotations = map[string]string{}
	}
	typed, held := p.divideTyped(always(n.from.taints.typed), current.Annotations, n.from.ahead)
	result.Annotations[clusterv1.TaintsFromMachineAnnotation] = p.formatTyped(typed, current.Annotations[clusterv1.TaintsFromMachineAnnotation])
	setOwnTracking(result.Annotations, TaintsFromMachineAnnotation, taint.FormatList(append(always(n.from.taints.annotated), held...)))
	return result
}

// divideTyped divides the typed taints between Cluster API's record and our own. A taint that the Machine does not have yet is ours, and
// one that was declared by annotation and has become typed stays ours until Cluster API lists it. Before that, Cluster API may not know
// the Machine's typed taints, and it removes from the Node what its record lists and it does not know.
func (p Policy) divideTyped(typed []corev1.Taint, annotations map[string]string, ahead ahead) (listed, held []corev1.Taint) {
	byClusterAPI, _ := taint.ParseList(annotations[clusterv1.TaintsFromMachineAnnotation])
	byHeirloom, _ := taint.ParseList(annotations[TaintsFromMachineAnnotation])
	ours, theirs := taint.Positions(byHeirloom), taint.Positions(byClusterAPI)
	for _, t := range typed {
		_, listedByUs := ours[taint.IDOf(t)]
		_, listedByThem := theirs[taint.IDOf(t)]
		if ahead.taint(t) || listedByUs && !listedByThem && p.ClusterAPITaints != PropagationDisabled {
			held = append(held, t)
		} else {
			listed = append(listed, t)
		}
	}
	return listed, held
}

func always(taints []clusterv1.MachineTaint) []corev1.Taint {
	var kept []corev1.Taint
	for _, t := range taints {
		if taint.Always(t) {
			kept = append(kept, taint.ForNode(t))
		}
	}
	return kept
}

// formatTyped returns the tracking annotation of typed taints in Cluster API's form. Cluster API cannot recover from any other. If
// it does not read the annotation, the values are added: they tell our taint from a foreign one with the same key and effect. But
// an annotation in Cluster API's form that lists the same taints stays: the gate may have been switched on a moment ago, and the
// two must not fight over a form.
func (p Policy) formatTyped(taints []corev1.Taint, recorded string) string {
	ids := taint.FormatIDs(taints)
	if p.ClusterAPITaints != PropagationDisabled || recorded == ids {
		return ids
	}
	return taint.FormatList(taints)
}

// recordedTaints reads both tracking annotations, in both forms. A broken entry is skipped, and the next write removes it.
func recordedTaints(annotations map[string]string) []corev1.Taint {
	byClusterAPI, _ := taint.ParseList(annotations[clusterv1.TaintsFromMachineAnnotation])
	byHeirloom, _ := taint.ParseList(annotations[TaintsFromMachineAnnotation])
	return slices.Concat(byClusterAPI, byHeirloom)
}

// tracks reports whether an annotation records what came from the Machine. A kubelet that registers cannot know this, so its claims,
// such as having had its Initialize taints, do not count.
func tracks(key string) bool {
	return slices.Contains(TrackingAnnotations(), key)
}

// TrackingAnnotations are those of a Node that record what came from the Machine.
func TrackingAnnotations() []string {
	return []string{
		clusterv1.LabelsFromMachineAnnotation, clusterv1.AnnotationsFromMachineAnnotation, clusterv1.TaintsFromMachineAnnotation,
		LabelsFromMachineAnnotation, AnnotationsFromMachineAnnotation, TaintsFromMachineAnnotation, UninitializedAnnotation, RecordAnnotation,
		MatchedByAddressAnnotation,
	}
}

// setTracking records keys in one of Cluster API's annotations, which stays once it exists.
func setTracking(annotations map[string]string, key, value string) {
	if annotations[key] != value {
		annotations[key] = value
	}
}

// setOwnTracking records keys in one of our own annotations, which exists only while it lists something.
func setOwnTracking(annotations map[string]string, key, value string) {
	if value == "" {
		delete(annotations, key)
		return
	}
	annotations[key] = value
}
