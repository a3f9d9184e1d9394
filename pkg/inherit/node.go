// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
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

// TrackingAnnotations are the annotations of a Node that record the entries from the Machine. They do not count in the create by a kubelet.
//
//nolint:gochecknoglobals // a table that nothing changes
var TrackingAnnotations = []string{
	clusterv1.LabelsFromMachineAnnotation, clusterv1.AnnotationsFromMachineAnnotation, clusterv1.TaintsFromMachineAnnotation,
	LabelsFromMachineAnnotation, AnnotationsFromMachineAnnotation, TaintsFromMachineAnnotation, UninitializedAnnotation, RecordAnnotation,
	MatchedByAddressAnnotation, OpenedGatesAnnotation,
}

func tracks(annotation string) bool { return slices.Contains(TrackingAnnotations, annotation) }

// Writer is the writer of a Node. It decides which entries may be injected in the write (docs/design.md §4).
type Writer bool

const (
	// Kubelet creates its own Node, under NodeRestriction.
	Kubelet Writer = true
	// Privileged is every other writer: Cluster API, the resync loop, an administrator.
	Privileged Writer = false
)

// NodeState is the part of a Node that can be inherited.
type NodeState struct {
	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint
	// New says that the Node has just registered, by the creation time from its API server.
	New bool
}

// OfNode returns the inheritable state of a Node.
func OfNode(node *corev1.Node, now time.Time) NodeState {
	isNew := !node.CreationTimestamp.IsZero() && now.Sub(node.CreationTimestamp.Time) < registration
	return NodeState{Labels: node.Labels, Annotations: node.Annotations, Taints: node.Spec.Taints, New: isNew}
}

// Equal reports whether two states are stored identically.
func (s NodeState) Equal(other NodeState) bool {
	return maps.Equal(s.Labels, other.Labels) && maps.Equal(s.Annotations, other.Annotations) &&
		slices.EqualFunc(s.Taints, other.Taints, func(a, b corev1.Taint) bool { return taint.IDOf(a) == taint.IDOf(b) && a.Value == b.Value })
}

// nodeSync is a write of a Node, with the Node's state and its source of inheritance.
type nodeSync struct {
	policy  Policy
	from    NodeSource
	claimed map[string]string // all annotations of the Node in this write
	current NodeState         // without tracking annotations that a kubelet registers with
	record  Record            // the entries that came from the Machine before
	writer  Writer
	out     Drops
}

// Node implements rules 11, 12 and 13. It returns the state of a Node after it has inherited in a write by writer, and the entries that it
// does not inherit.
func (p Policy) Node(from NodeSource, current NodeState, writer Writer) (NodeState, Drops) {
	n := &nodeSync{policy: p.naming(from), from: from, claimed: current.Annotations, current: current, writer: writer, out: slices.Clip(from.dropped)}
	if writer == Kubelet {
		n.current.Annotations = filter(current.Annotations, func(key string) bool { return !tracks(key) })
	}
	n.record = RecordOf(n.current)
	result := n.completed(n.metadata())
	wrong := tooLarge(n.current, result)
	if wrong == nil {
		return result, n.out
	}
	n.out.drop(Entry{}, DropInvalid, "", fmt.Sprintf("labels and annotations: a Node has no room for all of them: %v", wrong))
	for what, left := range map[string]map[string]string{labelKey: result.Labels, annotationKey: result.Annotations} {
		for key := range left {
			n.out.drop(Entry{what, key, true}, DropInvalid, "", "")
		}
	}
	kept := n.kept(result)
	result = n.completed(kept)
	if tooLarge(n.current, result) != nil {
		result = n.withoutRoom(kept, result)
	}
	return result, n.out
}

// kept returns the metadata of the Node without the keys that the result removes: a kubelet that fills its annotations must not keep keys
// that its Machine no longer has.
func (n *nodeSync) kept(result NodeState) NodeState {
	return NodeState{
		Labels:      filter(n.current.Labels, func(key string) bool { return has(result.Labels, key) }),
		Annotations: filter(n.current.Annotations, func(key string) bool { return has(result.Annotations, key) }),
	}
}

// withoutRoom returns the state of a Node that has no room even for our own annotations. Taints take no room there, and its kubelet must
// not keep them away: a Node that registers gets all taints, and later the Always taints, which need no record that the Node had them.
func (n *nodeSync) withoutRoom(kept, completed NodeState) NodeState {
	kept.Taints, kept.New = completed.Taints, n.current.New
	if n.writer == Privileged {
		kept.Taints = taint.Sync(n.current.Taints, n.from.taints(), n.record.Taints, true)
	}
	if !kept.Fits() { // a restored record can be too large
		kept.Annotations = n.current.Annotations
	}
	return kept
}

// Fits reports whether an API server accepts annotations of this size.
func (s NodeState) Fits() bool { return apivalidation.ValidateAnnotationsSize(s.Annotations) == nil }

// tooLarge returns an error if the result changes the annotations and they have more bytes than an API server accepts. The record of a
// label takes more room than the label itself, so a Machine may have more labels than its Node has room for.
func tooLarge(current, result NodeState) error {
	if maps.Equal(current.Annotations, result.Annotations) {
		return nil
	}
	return apivalidation.ValidateAnnotationsSize(result.Annotations)
}

// completed adds taints, the guard and the record to a state with metadata. A kubelet cannot write the record.
func (n *nodeSync) completed(metadata NodeState) NodeState {
	result := n.guard(n.withTaints(metadata))
	if n.writer == Privileged {
		result = n.recorded(result)
	}
	result.New = n.current.New
	return result
}

// metadata implements rules 11 and 12.
func (n *nodeSync) metadata() NodeState {
	now := Content{}
	if n.from.machine != nil {
		now = metadataOf(n.from.machine)
	}
	labels, listedLabels := n.syncMap(labelKey, n.current.Labels, n.from.Labels, now.Labels)
	annotations, listedAnnotations := n.syncMap(annotationKey, n.current.Annotations, n.from.Annotations, now.Annotations)
	for what, listed := range map[string][2]string{labelKey: listedLabels, annotationKey: listedAnnotations} {
		if name := trackedBy[what][0]; annotations[name] != listed[0] { // Cluster API's annotation stays once it exists
			annotations[name] = listed[0]
		}
		setOrDelete(annotations, trackedBy[what][1], listed[1])
	}
	setOrDelete(annotations, MatchedByAddressAnnotation, n.from.matched)
	return NodeState{Labels: labels, Annotations: annotations}
}

// byRule reports whether every release of Cluster API propagates this label or annotation of a Machine to the Node (rules 11 and 12).
func byRule(what, key string) bool {
	d := domain(key)
	if what == annotationKey {
		return within(d, clusterv1.ManagedNodeAnnotationDomain)
	}
	return d == clusterv1.NodeRoleLabelPrefix || within(d, clusterv1.ManagedNodeLabelDomain) ||
		within(d, clusterv1.NodeRestrictionLabelDomain) && !marks(key)
}

// NeverOnNodes are annotations whose values an API server parses: it refuses a Node with an invalid value.
//
//nolint:gochecknoglobals // a table that nothing changes
var NeverOnNodes = []string{corev1.TaintsAnnotationKey, corev1.PreferAvoidPodsAnnotationKey}

// notOnNode says why no rule, no regex of the operator and no named key propagates a label or an annotation of a Machine to its Node.
func (p Policy) notOnNode(what, key string) Why {
	if byRule(what, key) || what == labelKey && has(p.facts, key) {
		return ""
	}
	regexes := p.AdditionalLabels
	if what == annotationKey {
		if slices.Contains(NeverOnNodes, key) {
			return DropNever
		}
		regexes = p.AdditionalAnnotations
	} else if marks(key) {
		return DropReserved
	}
	if why := OfItself(key); why != "" || slices.ContainsFunc(regexes, func(r *regexp.Regexp) bool { return r.MatchString(key) }) ||
		p.names(what, key) {
		return why
	}
	return DropOutside
}

// restricted reports whether NodeRestriction may forbid a kubelet to set this label on its own Node, so that the Node could never register
// (docs/design.md §4). The short allow-list of NodeRestriction is not repeated here: the first later write adds these labels, like the
// others.
func restricted(key string) bool {
	d := domain(key)
	return within(d, "kubernetes.io") || within(d, "k8s.io")
}

// mapSync is a map of a Node: its labels or its annotations.
type mapSync struct {
	*nodeSync
	what string
	// current is the map of the Node, declared the map that the Machine will have, and machine the map that the Machine has now.
	current, declared, machine map[string]string
	// theirs and ours are the keys that Cluster API's and our own tracking annotation list. recorded are the labels of the record.
	theirs, ours, recorded sets.Set[string]
}

// syncMap returns a map of a Node after inheritance, and the lists for the two tracking annotations.
func (n *nodeSync) syncMap(what string, current, declared, machine map[string]string) (result map[string]string, lists [2]string) {
	theirs, ours := keySet(n.current.Annotations[trackedBy[what][0]]), keySet(n.current.Annotations[trackedBy[what][1]])
	s := mapSync{n, what, current, declared, machine, theirs, ours, sets.New(n.record.Labels...)}
	result = filter(current, func(key string) bool { return !s.gone(key) })
	var listed, extra []string
	for key := range theirs { // Cluster API also lists keys of its own there, which it manages itself
		if has(result, key) && (!s.brings(key) || !s.ahead(key)) {
			listed = append(listed, key)
		}
	}
	for key, value := range declared {
		if why, detail := s.leavesOut(key, value); why != "" {
			n.out.drop(Entry{what, key, true}, why, value, detail)
			continue
		}
		result[key] = value
		if byRule(what, key) && !s.ahead(key) && (!ours.Has(key) || theirs.Has(key)) { // see NodeSource.AheadOf
			listed = append(listed, key)
		} else {
			extra = append(extra, key)
		}
	}
	return result, [2]string{taint.Join(listed), taint.Join(extra)}
}

// leavesOut says why a key of the Machine does not reach the Node in this write.
func (s mapSync) leavesOut(key, value string) (why Why, detail string) {
	if why = s.policy.notOnNode(s.what, key); why != "" {
		return why, ""
	}
	if now, had := s.current[key]; !had || now != value {
		if wrong := refused(s.what, key, value); wrong != "" {
			return DropInvalid, "no Node can carry it: " + wrong
		}
	}
	if s.what == labelKey && s.writer == Kubelet && restricted(key) {
		return DropRestricted, ""
	}
	return "", ""
}

// brings reports whether the Machine declares a key that reaches the Node.
func (s mapSync) brings(key string) bool {
	return has(s.declared, key) && s.policy.notOnNode(s.what, key) == ""
}

// ahead reports whether the Machine does not have a key yet.
func (s mapSync) ahead(key string) bool {
	return s.from.machine != nil && !has(s.machine, key)
}

// gone reports whether the Node has a key from its Machine that it no longer inherits: the Machine no longer declares the key, or the
// operator removed the regex. The tracking annotations count only for keys that the kubelet could remove itself.
func (s mapSync) gone(key string) bool {
	recorded := s.what == labelKey && s.recorded.Has(key)
	believed := s.what != labelKey || !restricted(key)
	listed := s.ours.Has(key) || byRule(s.what, key) && s.theirs.Has(key)
	return !s.brings(key) && (recorded || believed && listed)
}

// withTaints implements rule 13: it returns the result with taints and with the annotations that track them.
func (n *nodeSync) withTaints(result NodeState) NodeState {
	current, declared := n.current, n.from.taints()
	initialized := current.initialized()
	result.Taints = taint.Sync(current.Taints, declared, n.record.Taints, initialized)
	opened := OpenedGates(current)
	for _, t := range declared {
		if id := taint.MachineID(t).String(); initialized && taint.Initialize(t) && opened.Has(id) {
			n.out.drop(Entry{taintKey, id, true}, DropGateOpened, "", "")
		} else if initialized && taint.Initialize(t) {
			n.out.drop(Entry{taintKey, id, true}, DropOnce, "", "")
		}
	}
	byClusterAPI, byHeirloom := listedTaints(current.Annotations)
	ours, theirs := taint.ByID(byHeirloom), taint.ByID(byClusterAPI)
	// Our annotation lists a typed taint that the Machine does not have yet, and keeps a taint that was declared by annotation until
	// Cluster API lists it. Until then Cluster API may not know the taint, and it removes from the Node all taints that its annotation
	// lists and it does not know.
	var typed []corev1.Taint
	extra := always(n.from.annotated)
	for _, t := range always(n.from.typed) {
		id := taint.IDOf(t)
		if n.from.taintIsAhead(id) || has(ours, id) && !has(theirs, id) && n.policy.ClusterAPITaints != PropagationDisabled {
			extra = append(extra, t)
		} else {
			typed = append(typed, t)
		}
	}
	// Cluster API can read only its own form, without values. If it does not read the annotation, values are added: they distinguish our
	// taint from a foreign taint with the same key and effect. But a list with the same taints in Cluster API's form stays: the gate may
	// have been turned on a moment ago, and Heirloom and Cluster API must not fight over the form.
	list := taint.FormatIDs(typed)
	if n.policy.ClusterAPITaints == PropagationDisabled && current.Annotations[clusterv1.TaintsFromMachineAnnotation] != list {
		list = taint.FormatList(typed)
	}
	result.Annotations[clusterv1.TaintsFromMachineAnnotation] = list
	setOrDelete(result.Annotations, TaintsFromMachineAnnotation, taint.FormatList(extra))
	return result
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

// listedTaints reads the tracking annotations of taints, in both forms. It skips invalid entries, and the next write removes them.
func listedTaints(annotations map[string]string) (theirs, ours []corev1.Taint) {
	theirs, _ = taint.ParseList(annotations[clusterv1.TaintsFromMachineAnnotation])
	ours, _ = taint.ParseList(annotations[TaintsFromMachineAnnotation])
	return theirs, ours
}

// guard keeps workload off a worker Node until it has its restricted labels, with the taint node.cluster.x-k8s.io/uninitialized. The first
// privileged write, which also sets the labels, removes the taint (docs/design.md §4). An API server may ask twice about the same create,
// once for each webhook or policy: a taint that the first answer added is still ours in the second.
func (n *nodeSync) guard(result NodeState) NodeState {
	uninitialized := clusterv1.NodeUninitializedTaint
	switch present := taint.Find(n.current.Taints, taint.IDOf(uninitialized)) >= 0; {
	case n.writer == Kubelet && n.from.ControlPlane:
	case n.writer == Kubelet && !present:
		result.Taints = append(result.Taints, uninitialized)
		result.Annotations[UninitializedAnnotation] = "added"
	case n.writer == Kubelet:
		if n.claimed[UninitializedAnnotation] == "added" &&
			n.claimed[clusterv1.TaintsFromMachineAnnotation] == result.Annotations[clusterv1.TaintsFromMachineAnnotation] {
			result.Annotations[UninitializedAnnotation] = "added"
		}
	case has(n.current.Annotations, UninitializedAnnotation) && !n.from.withheld:
		result.Taints = taint.Remove(result.Taints, taint.IDOf(uninitialized))
		delete(result.Annotations, UninitializedAnnotation)
	}
	return result
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

// setOrDelete sets one of our own annotations, or deletes it if there is nothing to record.
func setOrDelete(annotations map[string]string, key, value string) {
	if value == "" {
		delete(annotations, key)
		return
	}
	annotations[key] = value
}
