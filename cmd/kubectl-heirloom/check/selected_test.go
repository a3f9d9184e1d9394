// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nobody begins what is said if no MachineSet can be used.
const nobody = "No MachineSet in a namespace for which the webhook is called declares anything"

// excluded keeps the webhooks from namespaces, as the chart's value webhooks.excludeNamespaces.
func excluded(namespaces ...string) func(*scenery) {
	return func(s *scenery) {
		for _, name := range []string{metav1.NamespaceDefault, "fleet", "other"} {
			s.more = append(s.more, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": name}}})
		}
		selector := excluding(namespaces[0])
		selector.MatchExpressions[0].Values = namespaces
		webhook(func(w *hook) { w.NamespaceSelector = selector })(s)
		for i := range s.validating.Webhooks {
			s.validating.Webhooks[i].NamespaceSelector = selector
		}
		s.unanswered = namespaces
	}
}

// Dry runs are made where the webhooks are called: elsewhere, nobody answers.
func TestProbesOfExcludedNamespaces(t *testing.T) {
	byLabel := func(s *scenery) {
		excluded(metav1.NamespaceDefault, "fleet")(s)
		s.validating.Webhooks[0].NamespaceSelector.MatchExpressions[0].Key = "tier" // that of all
	}
	expect(t, "mutation", []finding{
		{name: "its namespace is excluded", change: excluded("fleet"), status: Unknown, message: nobody, next: "Declare"},
		{name: "its namespace is excluded by a label", change: byLabel, status: Unknown, message: nobody, next: "Declare"},
		{name: "another namespace is excluded", change: excluded("other"), status: OK, message: "would inherit label"},
	})
	expect(t, "validation", []finding{
		{name: "its namespace is excluded", change: excluded(metav1.NamespaceDefault), status: OK, message: "is refused"},
		{name: "its namespace is excluded by a label", change: byLabel, status: OK, message: "is refused"},
		{name: "every namespace is excluded", change: excluded(metav1.NamespaceDefault, "fleet", "other"), status: Unknown,
			message: "is not called for namespace default", next: "list Namespaces"},
	})
}
