// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	rulesField             = "rules"
	namespaceSelectorField = "namespaceSelector"
	conditionsField        = "matchConditions"
)

// field is one field of a webhook, in words that are equal if the field means the same.
type field struct{ name, value string }

// fields returns all fields of a webhook that the chart decides about, always in the same order. What is left out has the API
// server's default.
func fields(w admissionv1.MutatingWebhook) []field {
	return []field{
		{"path", pathOf(w.ClientConfig)},
		{rulesField, rules(w.Rules)},
		{"failurePolicy", string(ptr.Deref(w.FailurePolicy, admissionv1.Fail))},
		{"sideEffects", string(ptr.Deref(w.SideEffects, admissionv1.SideEffectClassUnknown))},
		{"matchPolicy", string(ptr.Deref(w.MatchPolicy, admissionv1.Equivalent))},
		{"reinvocationPolicy", string(ptr.Deref(w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy))},
		{"timeoutSeconds", fmt.Sprint(ptr.Deref(w.TimeoutSeconds, 10))},
		{"admissionReviewVersions", strings.Join(w.AdmissionReviewVersions, ", ")},
		{namespaceSelectorField, selector(w.NamespaceSelector)},
		{"objectSelector", selector(w.ObjectSelector)},
		{conditionsField, conditions(w.MatchConditions)},
	}
}

// pathOf returns the end of a URL that is the chart's: its last two parts, as a URL may have others before.
func pathOf(c admissionv1.WebhookClientConfig) string {
	full := ""
	if c.Service != nil {
		full = ptr.Deref(c.Service.Path, "")
	} else if parsed, err := url.Parse(ptr.Deref(c.URL, "")); err == nil {
		full = parsed.Path
	}
	parts := strings.Split(strings.Trim(full, "/"), "/")
	return "/" + strings.Join(parts[max(0, len(parts)-2):], "/")
}

// rules describes rules, whatever the order in which they and their parts are written.
func rules(all []admissionv1.RuleWithOperations) string {
	var words []string
	for _, rule := range all {
		var operations []string
		for _, operation := range rule.Operations {
			operations = append(operations, string(operation))
		}
		words = append(words, fmt.Sprintf("%s of %s in %s, versions %s, scope %s",
			list(operations), list(rule.Resources), list(rule.APIGroups), list(rule.APIVersions), ptr.Deref(rule.Scope, admissionv1.AllScopes)))
	}
	slices.Sort(words)
	return strings.Join(words, "; ")
}

func list(words []string) string {
	words = slices.Clone(words)
	for i, word := range words {
		if word == "" {
			words[i] = "core" // the API group without a name
		}
	}
	slices.Sort(words)
	return "[" + strings.Join(slices.Compact(words), " ") + "]"
}

func selector(s *metav1.LabelSelector) string {
	if s == nil {
		return "everything"
	}
	parsed, err := metav1.LabelSelectorAsSelector(s)
	switch {
	case err != nil:
		return fmt.Sprintf("invalid (%v)", err)
	case parsed.Empty():
		return "everything"
	}
	return parsed.String()
}

func conditions(all []admissionv1.MatchCondition) string {
	var words []string
	for _, c := range all {
		words = append(words, c.Name+": "+expression(c))
	}
	slices.Sort(words)
	return strings.Join(words, "; ")
}

// expression returns a condition's expression. How it is broken into lines means nothing.
func expression(c admissionv1.MatchCondition) string {
	return strings.Join(strings.Fields(c.Expression), " ")
}

// conditionDifferences names the conditions that differ: their expressions are long.
func conditionDifferences(want, has []admissionv1.MatchCondition) []string {
	of := func(all []admissionv1.MatchCondition, name string) (string, bool) {
		i := slices.IndexFunc(all, func(c admissionv1.MatchCondition) bool { return c.Name == name })
		if i < 0 {
			return "", false
		}
		return expression(all[i]), true
	}
	var all []string
	for _, c := range want {
		if live, there := of(has, c.Name); !there {
			all = append(all, fmt.Sprintf("match condition %s is missing", c.Name))
		} else if live != expression(c) {
			all = append(all, fmt.Sprintf("match condition %s has another expression", c.Name))
		}
	}
	for _, c := range has {
		if _, there := of(want, c.Name); !there {
			all = append(all, fmt.Sprintf("match condition %s is not the chart's", c.Name))
		}
	}
	return all
}
