// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type hook = admissionv1.MutatingWebhook

const wrongly = "The webhooks are not registered as the chart says."

// webhook changes one of the mutating webhooks, machines.heirloom.dev unless another is named.
func webhook(change func(*hook), name ...string) func(*scenery) {
	wanted := append(name, "machines.heirloom.dev")[0]
	return func(s *scenery) {
		i := slices.IndexFunc(s.mutating.Webhooks, func(w admissionv1.MutatingWebhook) bool { return w.Name == wanted })
		change(&s.mutating.Webhooks[i])
	}
}

// excluding selects all namespaces but one, as the chart does for webhooks.excludeNamespaces.
func excluding(namespace string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{namespace}},
	}}
}

func TestRegistered(t *testing.T) {
	const of = "MutatingWebhookConfiguration heirloom, webhook machines.heirloom.dev: "
	for name, tc := range map[string]struct {
		change func(*hook)
		detail string
	}{
		"failurePolicy":                          {func(w *hook) { w.FailurePolicy = new(admissionv1.Fail) }, "failurePolicy is Fail, and should be Ignore"},
		"a default that the chart does not want": {func(w *hook) { w.ReinvocationPolicy = nil }, "reinvocationPolicy is Never, and should be IfNeeded"},
		"matchPolicy":                            {func(w *hook) { w.MatchPolicy = new(admissionv1.Exact) }, "matchPolicy is Exact, and should be Equivalent"},
		"sideEffects":                            {func(w *hook) { w.SideEffects = new(admissionv1.SideEffectClassSome) }, "sideEffects is Some, and should be None"},
		"operations":                             {func(w *hook) { w.Rules[0].Operations = w.Rules[0].Operations[:1] }, "rules is [CREATE] of [machines]"},
		"a namespace of which the server knows nothing": {func(w *hook) {
			w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, "namespaceSelector is a=b, and should be everything"},
		"namespaces excluded by another label": {func(w *hook) {
			w.NamespaceSelector = excluding("kube-system")
			w.NamespaceSelector.MatchExpressions[0].Key = "team"
		}, "namespaceSelector is team notin (kube-system), and should be everything"},
		"objectSelector":    {func(w *hook) { w.ObjectSelector = nil }, "objectSelector is everything, and should be !heirloom.dev/ignore"},
		"path":              {func(w *hook) { w.ClientConfig.Service.Path = new("/mutate/nodes") }, "path is /mutate/nodes, and should be /mutate/machines"},
		"a condition less":  {func(w *hook) { w.MatchConditions = w.MatchConditions[1:] }, "match condition not-ignored is missing"},
		"another condition": {func(w *hook) { w.MatchConditions[0].Expression = "true" }, "match condition not-ignored has another expression"},
		"a condition more": {func(w *hook) {
			w.MatchConditions = append(w.MatchConditions, admissionv1.MatchCondition{Name: "x", Expression: "true"})
		}, "match condition x is not the chart's"},
	} {
		expect(t, "registered", []finding{{name: name, change: webhook(tc.change), status: Failed, message: wrongly, detail: of + tc.detail, next: "helm upgrade"}})
	}
	expect(t, "registered", []finding{
		{name: "as the chart says", status: OK, message: "All 9 webhooks"},
		{name: "what an API server adds and an operator may choose", change: func(s *scenery) {
			webhook(func(w *hook) {
				w.TimeoutSeconds, w.NamespaceSelector = new(int32(1)), nil
				w.MatchConditions[0].Expression = strings.ReplaceAll(w.MatchConditions[0].Expression, " ", "\n ")
				slices.Reverse(w.Rules[0].Operations)
			})(s)
			s.validating.Webhooks[0].FailurePolicy = new(admissionv1.Fail)
		}, status: OK},
		{name: "namespaces that the operator excludes", change: webhook(func(w *hook) { w.NamespaceSelector = excluding("kube-system") }), status: OK},
		{name: "by URL", change: (*scenery).byURL, status: OK},
		{name: "one is missing", change: func(s *scenery) { s.mutating.Webhooks = s.mutating.Webhooks[1:] }, status: Failed, message: wrongly,
			detail: "MutatingWebhookConfiguration heirloom: webhook machinedeployments.heirloom.dev is missing", next: "helm upgrade"},
		{name: "one more", change: func(s *scenery) {
			s.mutating.Webhooks = append(s.mutating.Webhooks, admissionv1.MutatingWebhook{Name: "x.heirloom.dev"})
		}, status: Failed, message: wrongly, detail: "webhook x.heirloom.dev is not the chart's", next: "helm upgrade"},
		{name: "none of a kind", change: func(s *scenery) { s.gone = []string{"validating"} }, status: Failed, message: wrongly,
			detail: "There is no ValidatingWebhookConfiguration with webhooks of Heirloom.", next: "helm upgrade"},
		{name: "of another release", change: func(s *scenery) { s.plugin = "v0.9.0"; s.mutating.Webhooks[0].MatchConditions = nil }, status: Warning,
			message: wrongly,
			detail:  "is missing", next: "the chart of v0.9.0, and the server is v0.3.0"},
		{name: "no rights", change: func(s *scenery) { s.denied = []string{"MutatingWebhookConfigurationList"} }, status: Unknown,
			message: "could not be read"},
	})
}

// registerIn registers the webhooks for one namespace.
func (s *scenery) registerIn(namespace string) {
	for i := range s.mutating.Webhooks {
		if s.mutating.Webhooks[i].Name != "nodes.heirloom.dev" {
			s.mutating.Webhooks[i].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}
		}
	}
	for i := range s.validating.Webhooks {
		s.validating.Webhooks[i].NamespaceSelector = s.mutating.Webhooks[0].NamespaceSelector
	}
}

// What depends on the server's settings must fit them.
func TestRegisteredAsTheServerWatches(t *testing.T) {
	inFleet := func(s *scenery) { s.registerIn("fleet") }
	group := webhook(func(w *hook) {
		w.Rules[0].APIGroups = append(w.Rules[0].APIGroups, "example.com")
	}, "siblings.heirloom.dev")
	expect(t, "registered", []finding{
		{name: "one namespace", change: func(s *scenery) { s.flag("--namespace=fleet"); inFleet(s) }, status: OK},
		{name: "registered for one, watches all", change: inFleet, status: Failed, message: wrongly,
			detail: "namespaceSelector is kubernetes.io/metadata.name=fleet", next: "helm"},
		{name: "watches one, registered for all", change: func(s *scenery) { s.flag("--namespace=fleet") }, status: Failed, message: wrongly,
			detail: "namespaceSelector is everything, and should be kubernetes.io/metadata.name=fleet", next: "helm"},
		{name: "one more group", change: func(s *scenery) { s.flag("--additional-provider-groups=example.com"); group(s) }, status: OK},
		{name: "a group that is not registered", change: func(s *scenery) { s.flag("--additional-provider-groups=example.com") }, status: Failed,
			message: wrongly,
			detail:  "webhook siblings.heirloom.dev: rules is", next: "helm"},
		{name: "a group that the server does not know", change: group, status: Failed, message: wrongly, detail: "example.com", next: "helm"},
		{name: "a server that is not known", change: func(s *scenery) { s.denied = []string{"DeploymentList"}; inFleet(s); group(s) }, status: OK},
	})
}

// The other values change everything that the chart lets an operator choose about the webhooks, and nothing else.
func TestWhatAnOperatorMayChoose(t *testing.T) {
	Expect := NewWithT(t).Expect
	expected, err := expectations()
	Expect(err).NotTo(HaveOccurred())
	chosen := map[string]bool{}
	for _, e := range expected {
		Expect(e.others.Name).To(Equal(e.chart.Name))
		others := fields(e.others)
		for i, field := range fields(e.chart) {
			if others[i] != field {
				chosen[field.name] = true
			}
		}
	}
	Expect(chosen).To(Equal(map[string]bool{"timeoutSeconds": true, "failurePolicy": true, namespaceSelectorField: true, rulesField: true}))
}
