// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// render renders the chart with these values under certificates, and with these others.
func render(t *testing.T, certificates map[string]any, others map[string]any) ([]unstructured.Unstructured, error) {
	t.Helper()
	root, err := controlplane.RepositoryRoot(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	values := map[string]any{}
	maps.Copy(values, others)
	if certificates != nil {
		values["certificates"] = certificates
	}
	return controlplane.RenderChart(t.Context(), filepath.Join(root, "deploy", "chart", "heirloom"),
		controlplane.ChartOptions{Namespace: stage.Namespace, Values: values})
}

// Values about certificates that cannot be meant are refused, and the message says what is wrong.
func TestChartRefusesWrongCertificates(t *testing.T) {
	t.Parallel()
	type values = map[string]any
	for _, tc := range []struct {
		name                 string
		certificates, others values
		problem              string
	}{
		{name: "no such mode", certificates: values{"mode": "magic"}, problem: "value must be one of 'cert-manager', 'self', 'provided'"},
		{name: "self with a Secret", certificates: values{"mode": "self", "provided": values{"secretName": "x"}}, problem: "certificates.provided is for certificates.mode=provided, not for self"},
		{name: "cert-manager with a CA bundle", certificates: values{"provided": values{"caBundle": "eA=="}}, problem: "certificates.provided is for certificates.mode=provided, not for cert-manager"},
		{name: "self with an Issuer", certificates: values{"mode": "self", "certManager": values{"issuerRef": values{"name": "x"}}}, problem: "issuerRef is for certificates.mode=cert-manager, not for self"},
		{name: "self for an address", certificates: values{"mode": "self"}, others: values{"webhooks": values{"url": "https://127.0.0.1:9443"}}, problem: "for host names only, not for the address 127.0.0.1"},
		{name: "cert-manager for a URL", others: values{"webhooks": values{"url": "https://127.0.0.1:9443"}}, problem: "webhooks.url needs certificates.mode=self or provided"},
		{name: "provided without a CA", certificates: values{"mode": "provided"}, problem: "needs certificates.provided.caBundle"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := render(t, tc.certificates, tc.others)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tc.problem)))
		})
	}
}

// With certificates.mode=self nothing of cert-manager's is needed, no Secret is mounted, and no CA bundle is the chart's.
func TestChartWithOwnCertificates(t *testing.T) {
	t.Parallel()
	Expect := NewWithT(t).Expect
	objects, err := render(t, map[string]any{"mode": "self"}, map[string]any{"workloadClusters": map[string]any{"webhookURL": "https://heirloom.example.com"}})
	Expect(err).NotTo(HaveOccurred())
	kinds := map[string]*unstructured.Unstructured{}
	for i := range objects {
		kinds[objects[i].GetKind()] = &objects[i]
	}
	Expect(kinds).NotTo(HaveKey("Certificate"))
	Expect(kinds).NotTo(HaveKey("Issuer"))
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		Expect(kinds[kind].GetAnnotations()).To(BeEmpty())
		webhooks, _, err := unstructured.NestedSlice(kinds[kind].Object, "webhooks")
		Expect(err).NotTo(HaveOccurred())
		Expect(webhooks).To(And(Not(BeEmpty()), HaveEach(HaveKeyWithValue("clientConfig", Not(HaveKey("caBundle"))))))
	}
	volumes, _, err := unstructured.NestedSlice(kinds["Deployment"].Object, "spec", "template", "spec", "volumes")
	Expect(err).NotTo(HaveOccurred())
	Expect(volumes).To(ConsistOf(HaveKey("emptyDir")))
	containers, _, err := unstructured.NestedSlice(kinds["Deployment"].Object, "spec", "template", "spec", "containers")
	Expect(err).NotTo(HaveOccurred())
	Expect(containers[0]).To(HaveKeyWithValue("args", ContainElements(
		"--webhook-cert-secret=heirloom-system/heirloom-webhook-authority",
		"--webhook-cert-dns-names=heirloom-webhook.heirloom-system.svc",
		"--webhook-cert-dns-names=heirloom.example.com",
		"--webhook-configuration=heirloom",
	)))
}
