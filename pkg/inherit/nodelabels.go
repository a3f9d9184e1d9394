// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Tracking annotations of what only Heirloom propagates to a Node. They are separate from Cluster API's annotations because Cluster
// API removes from a Node what its own annotations list and its own rules do not propagate (docs/design.md §2).
const (
	LabelsFromMachineAnnotation      = "heirloom.dev/labels-from-machine"
	AnnotationsFromMachineAnnotation = "heirloom.dev/annotations-from-machine"
	TaintsFromMachineAnnotation      = "heirloom.dev/taints-from-machine"
)

// nodeLabel is rule 11: whether every Cluster API propagates this Machine label to the Node.
func nodeLabel(key string) bool {
	d := domain(key)
	return d == clusterv1.NodeRoleLabelPrefix ||
		within(d, clusterv1.NodeRestrictionLabelDomain) && !marks(key) ||
		within(d, clusterv1.ManagedNodeLabelDomain)
}

// LabelsRead returns those labels of a Node that the rules read: what they may bring or have brought. A kubelet and a cloud provider
// write a dozen others. Lists longer than an API server stores do not count, and it takes no longer than the Node is long: a kubelet
// and its API server write whatever they like.
func (p Policy) LabelsRead(node *corev1.Node) map[string]string {
	recorded := sets.New[string]()
	for _, name := range TrackingAnnotations() {
		if list := node.Annotations[name]; len(list) <= mostBytes {
			recorded.Insert(strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(",; ", r) })...)
		}
	}
	return filter(node.Labels, func(key string) bool {
		return key == RecordLabel || key == InitializationLabel || nodeLabel(key) || recorded.Has(key) || p.additionalLabel(key)
	})
}

// nodeAnnotation is rule 12: whether every Cluster API propagates this Machine annotation to the Node.
func nodeAnnotation(key string) bool {
	return within(domain(key), clusterv1.ManagedNodeAnnotationDomain)
}

// additionalLabel reports whether only an operator's regex propagates a label, and not the rules.
func (p Policy) additionalLabel(key string) bool {
	return !nodeLabel(key) && matchesAny(p.AdditionalLabels, key) && droppedByRegex(key) == ""
}

func (p Policy) additionalAnnotation(key string) bool {
	return !nodeAnnotation(key) && matchesAny(p.AdditionalAnnotations, key) && WhyNotOwn(key) == ""
}

// restricted reports whether NodeRestriction may forbid a kubelet to set this label on its own Node. The plugin runs again after us
// and would answer 403, so that the Node could never register (docs/design.md §4). Its short allow-list is not repeated here: such a
// label is added by the first later write, like the others.
func restricted(key string) bool {
	d := domain(key)
	return within(d, "kubernetes.io") || within(d, "k8s.io")
}

// mapSync is one map of a Node (labels or annotations) and what is known about it.
type mapSync struct {
	// current is what the Node has.
	current map[string]string
	// declared is what the Machine has.
	declared map[string]string
	// byRule says which keys Cluster API's rules propagate, byOperator which ones only we do.
	byRule, byOperator func(key string) bool
	// withhold says which keys may not be written now, ahead which ones the Machine does not have yet.
	withhold, ahead func(key string) bool
	// rules and operator are the two tracking annotations as they stand. vouches says which of their keys to believe. recorded are
	// keys that came from the Machine even if neither lists them.
	rules, operator string
	vouches         func(key string) bool
	recorded        sets.Set[string]
}

// sync returns the map after inheritance and the tracking annotations that go with it.
func (s mapSync) sync() (result map[string]string, rules, operator string) {
	result = filter(s.current, func(key string) bool { return s.brings(key) || !s.recorded.Has(key) })
	s.pruneOperator(result)
	rulesTracked, held := s.pruneRules(result), s.held()
	var operatorTracked []string
	for key, value := range s.declared {
		if !s.brings(key) || s.withhold(key) {
			continue
		}
		result[key] = value
		if s.byRule(key) && !s.ahead(key) && !held.Has(key) {
			rulesTracked = append(rulesTracked, key)
		} else {
			operatorTracked = append(operatorTracked, key)
		}
	}
	return result, joinKeys(rulesTracked), joinKeys(operatorTracked)
}

// held are the keys that our own annotation lists and Cluster API's does not. They stay there until Cluster API lists them, which it does
// in its next write of the Node: it makes none for what the Node already has.
func (s mapSync) held() sets.Set[string] {
	if s.operator == "" {
		return nil
	}
	return sets.New(splitKeys(s.operator)...).Delete(splitKeys(s.rules)...)
}

// brings reports whether the Machine declares a key that reaches the Node.
func (s mapSync) brings(key string) bool {
	return has(s.declared, key) && (s.byRule(key) || s.byOperator(key))
}

// pruneRules removes keys that Cluster API's annotation lists and the Machine no longer declares, and returns those that stay
// listed. Cluster API also lists keys of its own there (interruptible instances, its own regexes), which it manages itself.
func (s mapSync) pruneRules(result map[string]string) []string {
	var kept []string
	for _, key := range splitKeys(s.rules) {
		switch {
		case s.byRule(key) && !s.brings(key) && s.vouches(key):
			delete(result, key)
		case has(result, key) && (!s.brings(key) || !s.ahead(key)):
			kept = append(kept, key)
		}
	}
	return kept
}

// pruneOperator removes keys that our own annotation lists and that no longer reach the Node: the Machine no longer declares them,
// or the operator removed the regex.
func (s mapSync) pruneOperator(result map[string]string) {
	for _, key := range splitKeys(s.operator) {
		if !s.brings(key) && s.vouches(key) {
			delete(result, key)
		}
	}
}

// splitKeys reads a tracking annotation. It skips blanks and empty entries: the annotation is Cluster API's, and users may have
// edited it.
func splitKeys(s string) []string {
	if len(s) > apivalidation.TotalAnnotationSizeLimitB {
		return nil // no API server has stored it
	}
	var keys []string
	for key := range strings.SplitSeq(s, ",") {
		if key = strings.TrimSpace(key); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

func joinKeys(keys []string) string {
	slices.Sort(keys)
	return strings.Join(slices.Compact(keys), ",")
}
