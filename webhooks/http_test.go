// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// paths holds the paths of all handlers. The last handler may refuse; the others must not.
var paths = []string{
	PathOf(owners.ControlPlanes), PathOf(owners.MachineDeployments), PathOf(owners.MachinePools), PathOf(owners.MachineSets),
	PathOf(owners.Machines), PathOf(owners.ExternalObjects), NodesPath, TaintsPath,
}

// mux returns the handler of the webhook server, without its listener.
func mux(t testing.TB, s server) http.Handler {
	t.Helper()
	webhookServer := webhook.NewServer(webhook.Options{})
	Register(webhookServer, s.Dependencies)
	return webhookServer.WebhookMux()
}

// post sends a body as an API server does, and returns the answer.
func post(handler http.Handler, path string, body []byte) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder
}

// ask sends a review and returns the review of the answer.
func ask(t testing.TB, handler http.Handler, path string, body []byte) admissionv1.AdmissionReview {
	t.Helper()
	Expect := NewWithT(t).Expect
	answer := post(handler, path, body)
	Expect(answer.Code).To(Equal(http.StatusOK), "the answer is %q", answer.Body)
	var review admissionv1.AdmissionReview
	Expect(json.Unmarshal(answer.Body.Bytes(), &review)).To(Succeed(), "the answer is %q", answer.Body)
	Expect(review.Response).NotTo(BeNil())
	return review
}

// A body that is no review gets a clear error. The error is no denial: an API server sees a failure of the webhook, and the failure policy
// lets the write pass.
func TestInvalidReviewsAreRejected(t *testing.T) {
	handler := mux(t, newServer(t, ordinary, nil, inherit.Policy{}))
	const notTheRequest = "the body must be an AdmissionReview of admission.k8s.io/v1 with a request"
	for _, tc := range []struct{ name, body, message string }{
		{name: "nothing", message: "decoding the review: jsontext: unexpected EOF"},
		{name: "half a review", body: `{"apiVersion":"admission.k8s.io/v1","kind":`, message: `unexpected EOF within "/kind"`},
		{name: "no JSON", body: "hello", message: "invalid character 'h'"},
		{name: "null", body: "null", message: notTheRequest},
		{name: "more than one review", body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}{}`, message: "invalid character '{' after top-level value"},
		{name: "no text", body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"` + "\xff" + `"}}`, message: "invalid UTF-8"},
		{name: "a review without a request", body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, message: notTheRequest},
		{name: "other letters", body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","Request":{}}`, message: notTheRequest},
		{name: "a review of the old version", body: `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{}}`, message: notTheRequest},
		{name: "another kind", body: `{"apiVersion":"admission.k8s.io/v1","kind":"Pod","request":{}}`, message: notTheRequest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, path := range paths {
				answer := post(handler, path, []byte(tc.body))
				NewWithT(t).Expect(answer.Code).To(Equal(http.StatusBadRequest))
				NewWithT(t).Expect(answer.Body.String()).To(ContainSubstring(tc.message))
			}
		})
	}
}

// A body that is barely a review gets an answer with the request's UID.
func TestReviews(t *testing.T) {
	handler := mux(t, newServer(t, ordinary, nil, inherit.Policy{}))
	for _, tc := range []struct{ name, request, warning string }{
		{name: "an object that is a text", request: `"operation":"CREATE","object":"text"`, warning: "unmarshal JSON string"},
		{name: "labels that are numbers", request: `"operation":"CREATE","object":{"metadata":{"labels":{"a":1}}}`, warning: `unmarshal JSON number into Go string within "/metadata/labels/a"`},
		{name: "a label that comes twice", request: `"operation":"CREATE","object":{"metadata":{"labels":{"a":"1","a":"2"}}}`, warning: "duplicate"},
		{name: "an operation that nobody knows", request: `"operation":"EXPLODE","object":{}`},
		{name: "a delete, which has no object", request: `"operation":"DELETE","object":null,"oldObject":{}`, warning: "the admission request has no object"},
		{name: "nothing but a UID", request: `"name":""`, warning: "the admission request has no object"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, path := range paths {
				Expect := NewWithT(t).Expect
				review := ask(t, handler, path, []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",`+tc.request+`}}`))
				Expect(review.TypeMeta).To(Equal(metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}))
				Expect(review.Response.UID).To(BeEquivalentTo("u"))
				Expect(review.Response.Allowed).To(BeTrue())
				Expect(review.Response.Patch).To(BeEmpty())
				if tc.warning == "" {
					Expect(review.Response.Warnings).To(BeEmpty())
					continue
				}
				Expect(review.Response.Warnings).To(HaveExactElements(ContainSubstring(tc.warning)))
			}
		})
	}
}

// review returns the body of a request, as an API server sends it.
func (w write) review(t testing.TB, changes ...func(*admissionv1.AdmissionRequest)) []byte {
	t.Helper()
	req := w.request(t)
	for _, change := range changes {
		change(&req.AdmissionRequest)
	}
	review := admissionv1.AdmissionReview{Request: &req.AdmissionRequest}
	review.APIVersion, review.Kind = "admission.k8s.io/v1", "AdmissionReview"
	body, err := json.Marshal(review)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return body
}
