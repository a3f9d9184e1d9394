// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"context"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/test/fleet"
)

func TestRequire(t *testing.T) {
	g := NewWithT(t)
	required, err := ParseRequired([]string{"label=a"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect((&Report{Rows: []Row{{Nodes: 2}}, Required: required}).Sentences(false)).To(ConsistOf("No Node lacks a required key (2 Nodes)."))
	for _, wrong := range []string{"cost-center", "field=x", "label=", "label=a=b"} {
		_, err := ParseRequired([]string{wrong})
		g.Expect(err).To(MatchError(ContainSubstring("must be label=KEY, annotation=KEY or taint=KEY")), wrong)
	}
}

// Anyone may choose the name of a field manager, and a spreadsheet would evaluate it as a formula.
func TestNoFormula(t *testing.T) {
	var out bytes.Buffer
	NewWithT(t).Expect((&Report{Rows: []Row{{Error: `=HYPERLINK("https://evil")`}}}).CSV(&out)).To(Succeed())
	NewWithT(t).Expect(out.String()).To(ContainSubstring(`"'=HYPERLINK`))
}

func TestAdmission(t *testing.T) {
	binding := policy.Binding(admissionv1.SchemeGroupVersion)
	configuration := func(webhook string) client.Object {
		return &admissionv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "heirloom"}, Webhooks: []admissionv1.MutatingWebhook{{Name: webhook}},
		}
	}
	for want, objects := range map[string][]client.Object{
		"policy": {binding, configuration("nodes.heirloom.dev")}, "webhook": {configuration("nodes.heirloom.dev")}, "loop": {configuration("another")},
	} {
		server := fake.NewClientBuilder().WithObjects(objects...).Build()
		NewWithT(t).Expect(Admission(t.Context(), server, "heirloom")).To(Equal(want))
	}
	silent := fleet.Server().WithInterceptorFuncs(fleet.Asks(func(string) error { return context.DeadlineExceeded })).Build()
	NewWithT(t).Expect(Admission(t.Context(), silent, "heirloom")).To(Equal(Unknown))
}
