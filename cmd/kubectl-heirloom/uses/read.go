// SPDX-License-Identifier: Apache-2.0

package uses

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// of returns the selectors of Nodes in an object of a known kind.
func (k kind) of(u *unstructured.Unstructured) (all []Selector) {
	for _, field := range k.fields {
		walk(u.Object, strings.Split(field.path, "."), "", func(path string, value any) {
			selectors, err := field.read(value)
			if err != nil {
				text, _ := json.Marshal(value) // it came as JSON
				selectors = []Selector{{text: string(text), unreadable: true}}
			}
			for _, s := range selectors {
				s.Field = strings.TrimSuffix(path+"."+s.Field, ".")
				all = append(all, s)
			}
		})
	}
	return all
}

// walk visits the values at a path. A name that ends with [] is a list.
func walk(value any, path []string, at string, visit func(at string, value any)) {
	if len(path) == 0 {
		visit(at, value)
		return
	}
	object, _ := value.(map[string]any)
	name, isList := strings.CutSuffix(path[0], "[]")
	below, there := object[name]
	if !there || below == nil {
		return
	}
	at = strings.TrimPrefix(at+"."+name, ".")
	if !isList {
		walk(below, path[1:], at, visit)
		return
	}
	list, _ := below.([]any)
	for i, item := range list {
		walk(item, path[1:], at+"["+strconv.Itoa(i)+"]", visit)
	}
}

// decoded returns a reader of a field that has a Go type.
func decoded[T any](read func(T) ([]Selector, error)) func(any) ([]Selector, error) {
	return func(value any) ([]Selector, error) {
		var typed T
		raw, err := json.Marshal(value)
		if err == nil {
			err = json.Unmarshal(raw, &typed)
		}
		if err != nil {
			return nil, fmt.Errorf("reading a selector of Nodes: %w", err)
		}
		return read(typed)
	}
}

// selects returns the selector with a condition.
func selects(of condition, err error) ([]Selector, error) { return []Selector{{matches: of}}, err }

func ofCalico(text string) ([]Selector, error) {
	of, err := parseCalico(text)
	return []Selector{{matches: of, text: text}}, err
}

func ofMap(matchLabels map[string]string) ([]Selector, error) {
	return ofLabelSelector(metav1.LabelSelector{MatchLabels: matchLabels})
}

func ofLabelSelector(selector metav1.LabelSelector) ([]Selector, error) {
	return selects(labelSelector(selector))
}

// ofLabelSelectors reads a list, of which one selector has to match.
func ofLabelSelectors(list []metav1.LabelSelector) ([]Selector, error) {
	any := or()
	for _, selector := range list {
		of, err := labelSelector(selector)
		if err != nil {
			return nil, err
		}
		any.of = append(any.of, of)
	}
	return selects(any, nil)
}

// labelSelector reads a selector. In the selectors of its policies, Cilium names the source of a label before its key.
func labelSelector(selector metav1.LabelSelector) (condition, error) {
	t := corev1.NodeSelectorTerm{}
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		t.MatchExpressions = append(t.MatchExpressions, corev1.NodeSelectorRequirement{
			Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{selector.MatchLabels[key]},
		})
	}
	for _, e := range selector.MatchExpressions {
		t.MatchExpressions = append(t.MatchExpressions, corev1.NodeSelectorRequirement{
			Key: e.Key, Operator: corev1.NodeSelectorOperator(e.Operator), Values: e.Values,
		})
	}
	for i, e := range t.MatchExpressions {
		t.MatchExpressions[i].Key = strings.TrimPrefix(strings.TrimPrefix(e.Key, "k8s:"), "any:")
	}
	return term(t)
}

// operators are the operators of selectors in Kubernetes.
//
//nolint:gochecknoglobals // a table that nothing changes
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn, corev1.NodeSelectorOpExists: selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist, corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}

// term reads a list, all of whose requirements have to match. Requirements on fields depend on no label.
func term(t corev1.NodeSelectorTerm) (condition, error) {
	all := and()
	for _, e := range t.MatchExpressions {
		operator := operators[e.Operator]
		if operator == selection.In && len(e.Values) == 1 {
			operator = selection.Equals
		}
		r, err := labels.NewRequirement(e.Key, operator, e.Values)
		if err != nil {
			return condition{}, fmt.Errorf("reading a selector of Nodes: %w", err)
		}
		test := condition{key: e.Key, text: r.String(), test: func(set labels.Set) bool { return r.Matches(set) }, values: e.Values}
		if limit, err := strconv.Atoi(strings.Join(e.Values, " ")); err == nil { // Gt and Lt need a value on each side
			test.values = append(slices.Clone(test.values), strconv.Itoa(limit-1), strconv.Itoa(limit+1))
		}
		all.of = append(all.of, test)
	}
	return all, nil
}

func ofRequirements(list []corev1.NodeSelectorRequirement) ([]Selector, error) {
	return selects(term(corev1.NodeSelectorTerm{MatchExpressions: list}))
}

func ofNodeSelector(selector corev1.NodeSelector) ([]Selector, error) {
	any := or()
	for _, t := range selector.NodeSelectorTerms {
		if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
			continue // an empty term matches no Node
		}
		of, err := term(t)
		if err != nil {
			return nil, err
		}
		any.of = append(any.of, of)
	}
	return selects(any, nil)
}

func ofTopologies(list []corev1.TopologySelectorTerm) ([]Selector, error) {
	terms := corev1.NodeSelector{}
	for _, topology := range list {
		t := corev1.NodeSelectorTerm{}
		for _, e := range topology.MatchLabelExpressions {
			t.MatchExpressions = append(t.MatchExpressions, corev1.NodeSelectorRequirement{Key: e.Key, Operator: corev1.NodeSelectorOpIn, Values: e.Values})
		}
		terms.NodeSelectorTerms = append(terms.NodeSelectorTerms, t)
	}
	return ofNodeSelector(terms)
}

func ofNodeAffinity(affinity corev1.NodeAffinity) (all []Selector, err error) {
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		if all, err = ofNodeSelector(*required); err != nil {
			return nil, err
		}
		all[0].Field = "requiredDuringSchedulingIgnoredDuringExecution"
	}
	for i, preferred := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		of, err := term(preferred.Preference)
		if err != nil {
			return nil, err
		}
		all = append(all, Selector{Field: fmt.Sprintf("preferredDuringSchedulingIgnoredDuringExecution[%d]", i), matches: of, prefers: true})
	}
	return all, nil
}

// topology is a field that names a key of a topology.
func topology(key string, prefers bool) ([]Selector, error) {
	return []Selector{{topology: key, text: "topologyKey " + key, prefers: prefers}}, nil
}

func ofSpread(c corev1.TopologySpreadConstraint) ([]Selector, error) {
	return topology(c.TopologyKey, c.WhenUnsatisfiable == corev1.ScheduleAnyway)
}

func ofPodTerm(t corev1.PodAffinityTerm) ([]Selector, error) { return topology(t.TopologyKey, false) }

func ofWeightedPodTerm(t corev1.WeightedPodAffinityTerm) ([]Selector, error) {
	return topology(t.PodAffinityTerm.TopologyKey, true)
}
