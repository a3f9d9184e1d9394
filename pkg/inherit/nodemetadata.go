// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// NeverOnNodes are annotations whose values an API server parses: it refuses a Node with an invalid value.
//
//nolint:gochecknoglobals // a table that nothing changes
var NeverOnNodes = []string{corev1.TaintsAnnotationKey, corev1.PreferAvoidPodsAnnotationKey}

// metadata implements rules 11 and 12: it returns the labels and annotations of the Node, with the annotations that list them.
func (w *nodeWrite) metadata() NodeState {
	now := Content{}
	if w.from.machine != nil {
		now = metadataOf(w.from.machine)
	}
	w.restricted = map[string]string{}
	labels, listedLabels := w.entries(labelKey, w.node.Labels, w.from.Labels, now.Labels)
	annotations, listedAnnotations := w.entries(annotationKey, w.node.Annotations, w.from.Annotations, now.Annotations)
	for what, listed := range map[string][2]string{labelKey: listedLabels, annotationKey: listedAnnotations} {
		if name := trackedBy[what][0]; annotations[name] != listed[0] { // Cluster API's annotation stays once it exists
			annotations[name] = listed[0]
		}
		setOrDelete(annotations, trackedBy[what][1], listed[1])
	}
	setOrDelete(annotations, MatchedByAddressAnnotation, w.from.matched)
	return NodeState{Labels: labels, Annotations: annotations}
}

// entries returns the labels or the annotations of a Node after inheritance, and the lists for Cluster API's and our own tracking
// annotation. declared is the map that the Machine will have, machine the map that it has now.
func (w *nodeWrite) entries(what string, current, declared, machine map[string]string) (result map[string]string, lists [2]string) {
	theirs, ours := w.node.keys[what][0], w.node.keys[what][1]
	inherits := func(key string) bool { return has(declared, key) && w.policy.notOnNode(what, key) == "" }
	ahead := func(key string) bool { return w.from.machine != nil && !has(machine, key) } // see NodeSource.AheadOf
	result = filter(current, func(key string) bool { return inherits(key) || !w.fromMachine(what, key, theirs, ours) })
	var extra []string
	listed := slices.DeleteFunc(theirs.UnsortedList(), func(key string) bool { // Cluster API also lists keys that it manages itself
		return !has(result, key) || inherits(key) && ahead(key)
	})
	for key, value := range declared {
		if why, detail := w.leavesOut(what, key, value, current); why != "" {
			w.out.drop(Entry{what, key, true}, why, value, detail)
			continue
		}
		result[key] = value
		if what == labelKey && restricted(key) {
			w.restricted[key] = value
		}
		if byRule(what, key) && !ahead(key) && (!ours.Has(key) || theirs.Has(key)) {
			listed = append(listed, key)
		} else {
			extra = append(extra, key)
		}
	}
	return result, [2]string{taint.Join(listed), taint.Join(extra)}
}

// fromMachine reports whether the Node has a key from its Machine. The tracking annotations count only for keys that the kubelet could
// remove itself.
func (w *nodeWrite) fromMachine(what, key string, theirs, ours sets.Set[string]) bool {
	if what == labelKey && restricted(key) {
		return slices.Contains(w.node.Record.Labels, key)
	}
	return ours.Has(key) || byRule(what, key) && theirs.Has(key)
}

// leavesOut says why a key of the Machine does not reach the Node in this write.
func (w *nodeWrite) leavesOut(what, key, value string, current map[string]string) (why Why, detail string) {
	if why = w.policy.notOnNode(what, key); why != "" {
		return why, ""
	}
	if now, had := current[key]; !had || now != value {
		if wrong := refused(what, key, value); wrong != "" {
			return DropInvalid, "no Node can carry it: " + wrong
		}
	}
	if what == labelKey && w.turn.Registering && restricted(key) {
		return DropRestricted, ""
	}
	return "", ""
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

// setOrDelete sets one of our own annotations, or deletes it if there is nothing to record.
func setOrDelete(annotations map[string]string, key, value string) {
	if value == "" {
		delete(annotations, key)
		return
	}
	annotations[key] = value
}
