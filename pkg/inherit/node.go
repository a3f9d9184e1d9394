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

// Tracking annotations of what only Heirloom propagates to a Node, apart from Cluster API's (docs/design.md §2).
const (
	LabelsFromMachineAnnotation      = "heirloom.dev/labels-from-machine"
	AnnotationsFromMachineAnnotation = "heirloom.dev/annotations-from-machine"
	TaintsFromMachineAnnotation      = "heirloom.dev/taints-from-machine"
)

// UninitializedAnnotation is on a Node to which Heirloom added the taint node.cluster.x-k8s.io/uninitialized. Only there Heirloom
// removes that taint again.
const UninitializedAnnotation = "heirloom.dev/uninitialized"

// TrackingAnnotations are those of a Node that record what came from the Machine. What a kubelet that registers claims there does not count.
//
//nolint:gochecknoglobals // a table that nothing changes
var TrackingAnnotations = []string{
	clusterv1.LabelsFromMachineAnnotation, clusterv1.AnnotationsFromMachineAnnotation, clusterv1.TaintsFromMachineAnnotation,
	LabelsFromMachineAnnotation, AnnotationsFromMachineAnnotation, TaintsFromMachineAnnotation, UninitializedAnnotation, RecordAnnotation,
	MatchedByAddressAnnotation, OpenedGatesAnnotation,
}

func tracks(annotation string) bool { return slices.Contains(TrackingAnnotations, annotation) }

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
func OfNode(node *corev1.Node, now time.Time) NodeState {
	isNew := !node.CreationTimestamp.IsZero() && now.Sub(node.CreationTimestamp.Time) < registration
	return NodeState{Labels: node.Labels, Annotations: node.Annotations, Taints: node.Spec.Taints, New: isNew}
}

// Equal reports whether two states would be stored as the same.
func (s NodeState) Equal(other NodeState) bool {
	return maps.Equal(s.Labels, other.Labels) && maps.Equal(s.Annotations, other.Annotations) &&
		slices.EqualFunc(s.Taints, other.Taints, func(a, b corev1.Taint) bool { return taint.IDOf(a) == taint.IDOf(b) && a.Value == b.Value })
}

// nodeSync is one write of a Node, with what is known of it and of what it inherits from.
type nodeSync struct {
	policy  Policy
	from    NodeSource
	claimed map[string]string // the annotations that a kubelet registers with
	current NodeState         // without those that a kubelet which registers cannot know
	record  Record            // what came from the Machine before
	writer  Writer
	out     Drops
}

// Node is rules 11, 12 and 13: the state of a Node after it has inherited in a write by writer, and what it does not inherit.
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

// kept returns the metadata that the Node has, without the keys that it is to lose: a kubelet that fills its annotations must not keep
// what its Machine no longer has.
func (n *nodeSync) kept(result NodeState) NodeState {
	return NodeState{
		Labels:      filter(n.current.Labels, func(key string) bool { return has(result.Labels, key) }),
		Annotations: filter(n.current.Annotations, func(key string) bool { return has(result.Annotations, key) }),
	}
}

// withoutRoom is the state of a Node that has no room even for our own annotations. Taints take no room there, and its kubelet must not
// keep them away: a Node that registers gets all of them, and later those with propagation Always, which need no note that it had them.
func (n *nodeSync) withoutRoom(kept, completed NodeState) NodeState {
	kept.Taints, kept.New = completed.Taints, n.current.New
	if n.writer == Privileged {
		kept.Taints = taint.Sync(n.current.Taints, n.from.taints(), n.record.Taints, true)
	}
	if !kept.Fits() { // as with a record that is restored
		kept.Annotations = n.current.Annotations
	}
	return kept
}

// Fits reports whether an API server accepts so many bytes of annotations.
func (s NodeState) Fits() bool { return apivalidation.ValidateAnnotationsSize(s.Annotations) == nil }

// tooLarge returns an error if there are more bytes of annotations than an API server accepts. A record of a label takes more than
// the label itself, so a Machine may have more than its Node has room for.
func tooLarge(current, result NodeState) error {
	if maps.Equal(current.Annotations, result.Annotations) {
		return nil
	}
	return apivalidation.ValidateAnnotationsSize(result.Annotations)
}

// completed adds the rest to a state with its metadata: taints, the guard, and the record, which a kubelet cannot write.
func (n *nodeSync) completed(metadata NodeState) NodeState {
	result := n.guard(n.withTaints(metadata))
	if n.writer == Privileged {
		result = n.recorded(result)
	}
	result.New = n.current.New
	return result
}

// metadata is rules 11 and 12.
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

// byRule reports whether every Cluster API propagates this label or annotation of a Machine to the Node (rules 11 and 12).
func byRule(what, key string) bool {
	d := domain(key)
	if what == annotationKey {
		return within(d, clusterv1.ManagedNodeAnnotationDomain)
	}
	return d == clusterv1.NodeRoleLabelPrefix || within(d, clusterv1.ManagedNodeLabelDomain) ||
		within(d, clusterv1.NodeRestrictionLabelDomain) && !marks(key)
}

// NeverOnNodes are annotations whose values an API server reads, and refuses the Node if it cannot.
//
//nolint:gochecknoglobals // a table that nothing changes
var NeverOnNodes = []string{corev1.TaintsAnnotationKey, corev1.PreferAvoidPodsAnnotationKey}

// notOnNode says why neither a rule nor an operator's regex brings a label or an annotation of a Machine to its Node.
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
// (docs/design.md §4). Its short allow-list is not repeated here: such a label is added by the first later write, like the others.
func restricted(key string) bool {
	d := domain(key)
	return within(d, "kubernetes.io") || within(d, "k8s.io")
}

// mapSync is one map of a Node: its labels or its annotations.
type mapSync struct {
	*nodeSync
	what string
	// current is what the Node has, declared what the Machine will have, and machine what it has now.
	current, declared, machine map[string]string
	// theirs and ours are the keys that Cluster API's and our own tracking annotation list, recorded those of the record.
	theirs, ours, recorded sets.Set[string]
}

// syncMap returns a map of a Node after inheritance, and what the two tracking annotations list.
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

// gone reports whether the Node has a key from its Machine that reaches it no longer: the Machine does not declare it any more, or the
// operator removed the regex. The annotations are believed only about what the kubelet could remove itself.
func (s mapSync) gone(key string) bool {
	recorded := s.what == labelKey && s.recorded.Has(key)
	believed := s.what != labelKey || !restricted(key)
	listed := s.ours.Has(key) || byRule(s.what, key) && s.theirs.Has(key)
	return !s.brings(key) && (recorded || believed && listed)
}

// withTaints is rule 13: result with the taints, and with the annotations that track them.
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
	// A typed taint that the Machine does not have yet is listed by us, and one that was declared by annotation stays there until Cluster
	// API lists it. Before that, Cluster API may not know it, and it removes from the Node what its record lists and it does not know.
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
	// Cluster API can read its own form only. If it does not read the annotation, the values are added: they tell our taint from a foreign
	// one with the same key and effect. But the list stays if it is the same in Cluster API's form: the gate may have been switched on a
	// moment ago, and the two must not fight over a form.
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

// listedTaints reads the tracking annotations of taints, in both forms. A broken entry is skipped, and the next write removes it.
func listedTaints(annotations map[string]string) (theirs, ours []corev1.Taint) {
	theirs, _ = taint.ParseList(annotations[clusterv1.TaintsFromMachineAnnotation])
	ours, _ = taint.ParseList(annotations[TaintsFromMachineAnnotation])
	return theirs, ours
}

// guard keeps workload off a worker Node until its restricted labels are there, with the taint node.cluster.x-k8s.io/uninitialized. The first
// privileged write, which also sets the labels, removes it again (docs/design.md §4). An API server may ask twice about the same create,
// once for each webhook or policy: what the first answer added is still ours in the second.
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

// LabelsRead returns those labels of a Node that the rules read: what they may bring or have brought. A kubelet and a cloud provider write a
// dozen others. It takes no longer than the Node is long: a kubelet and its API server write whatever they like.
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

// setOrDelete records something in one of our own annotations, which exists only while it records something.
func setOrDelete(annotations map[string]string, key, value string) {
	if value == "" {
		delete(annotations, key)
		return
	}
	annotations[key] = value
}
