// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

func TestRulesOfTheChartAreRegistered(t *testing.T) {
	Expect := NewWithT(t).Expect
	ca := newCA(t)
	from := installedWith(t, ca)
	untouched := from.DeepCopy()

	made, err := Configuration(from, "https://heirloom.example.com/workload/a/b/c")
	Expect(err).NotTo(HaveOccurred())
	Expect(from).To(Equal(untouched))

	want := untouched.Webhooks[1].DeepCopy()
	want.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://heirloom.example.com/workload/a/b/c"), CABundle: ca}
	want.NamespaceSelector = nil
	Expect(made.Webhooks).To(Equal([]admissionregistrationv1.MutatingWebhook{*want}))
	Expect(made.Name).To(Equal("management.heirloom.dev"))
	Expect(made.Labels).To(Equal(map[string]string{"app.kubernetes.io/name": "heirloom", "app.kubernetes.io/managed-by": "heirloom"}))
}

// A chart names its Service after its configuration, so a name that no Service can have is never an installed configuration.
func TestNoInstalledHeirloomHasTheName(t *testing.T) {
	NewWithT(t).Expect(validation.IsDNS1035Label(ObjectName)).NotTo(BeEmpty())
	NewWithT(t).Expect(validation.IsDNS1123Subdomain(ObjectName)).To(BeEmpty())
}

func TestDangerousConfigurationsAreRefused(t *testing.T) {
	type webhook = admissionregistrationv1.MutatingWebhook
	ca := newCA(t)
	for _, tc := range []struct {
		name     string
		change   func(*webhook)
		caBundle []byte
		problem  string
	}{
		{name: "another webhook", change: func(w *webhook) { w.Name = "machines.heirloom.dev" }, problem: "has no webhook nodes.heirloom.dev"},
		{name: "a webhook that fails closed", change: func(w *webhook) { w.FailurePolicy = ptr.To(admissionregistrationv1.Fail) }, problem: "failurePolicy is Fail"},
		{name: "a webhook that fails closed by default", change: func(w *webhook) { w.FailurePolicy = nil }, problem: "failurePolicy is Fail"},
		{name: "three seconds", change: func(w *webhook) { w.TimeoutSeconds = ptr.To[int32](3) }, problem: "timeoutSeconds is 3"},
		{name: "no time at all", change: func(w *webhook) { w.TimeoutSeconds = ptr.To[int32](0) }, problem: "timeoutSeconds is 0"},
		{name: "the default of ten seconds", change: func(w *webhook) { w.TimeoutSeconds = nil }, problem: "timeoutSeconds is 10"},
		{name: "no rules", change: func(w *webhook) { w.Rules = nil }, problem: "no rules"},
		{name: "the status of Nodes", change: func(w *webhook) { w.Rules[0].Resources = []string{"nodes", "nodes/status"} }, problem: "more than CREATE and UPDATE of nodes"},
		{name: "a second rule, for Pods", change: func(w *webhook) {
			w.Rules = append(w.Rules, *w.Rules[0].DeepCopy())
			w.Rules[1].Resources = []string{"pods"}
		}, problem: "more than CREATE and UPDATE of nodes"},
		{name: "other groups' nodes", change: func(w *webhook) { w.Rules[0].APIGroups = []string{"", "metrics.k8s.io"} }, problem: "more than CREATE and UPDATE of nodes"},
		{name: "deletes", change: func(w *webhook) {
			w.Rules[0].Operations = append(w.Rules[0].Operations, admissionregistrationv1.Delete)
		}, problem: "more than CREATE and UPDATE of nodes"},
		{name: "no CA certificates, as before cert-manager has been there", caBundle: []byte{}, problem: "no caBundle (yet)"},
		{name: "CA certificates that are none", caBundle: []byte("Cg=="), problem: "not a PEM certificate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.caBundle == nil {
				tc.caBundle = ca
			}
			from := installedWith(t, tc.caBundle)
			if tc.change != nil {
				tc.change(&from.Webhooks[1])
			}
			made, err := Configuration(from, "https://heirloom.example.com/workload/a/b/c")
			NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring("MutatingWebhookConfiguration heirloom"), ContainSubstring(tc.problem))))
			NewWithT(t).Expect(made).To(BeNil())
		})
	}
}
