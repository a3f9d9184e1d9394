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

// paths are those of every handler; the last one refuses, the others must not.
var paths = []string{
	PathOf(owners.ControlPlanes), PathOf(owners.MachineDeployments), PathOf(owners.MachinePools), PathOf(owners.MachineSets),
	PathOf(owners.Machines), PathOf(owners.ExternalObjects), NodesPath, TaintsPath,
}

// mux is the webhook server as it is wired, without its listener.
func mux(t testing.TB, s server) http.Handler {
	t.Helper()
	webhookServer := webhook.NewServer(webhook.Options{})
	Register(webhookServer, s.Dependencies)
	return webhookServer.WebhookMux()
}

// post sends a body the way an API server does, and returns the answer.
func post(handler http.Handler, path string, body []byte) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder
}

// ask sends a review and returns that of the answer.
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

// Whatever is no review is answered clearly. It is no denial: to an API server such a status is a failure of the webhook, and the failure
// policy is to let the write pass.
func TestWhatIsNoReview(t *testing.T) {
	handler := mux(t, newServer(t, ordinary, nil, inherit.Policy{}))
	const notTheRequest = "the body must be an AdmissionReview of admission.k8s.io/v1 with a request"
	for _, tc := range []struct{ name, body, message string }{
		{name: "nothing", message: "decoding the review: jsontext: unexpected EOF"},
		{name: "half a review", body: `{"apiVersion":"admission.k8s.io/v1","kind":`, message: `unexpected EOF within "/kind"`},
		{name: "no JSON", body: "hello", message: "invalid character 'h'"},
		{name: "YAML", body: "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nrequest: {uid: u, object: {}}\n", message: "invalid character 'a'"},
		{name: "null", body: "null", message: notTheRequest},
		{name: "more than one review", body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}{}`, message: "invalid character '{' after top-level value"},
		{name: "a request that is a text", body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":"text"}`, message: "unmarshal JSON string"},
		{name: "no text", body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"` + "\xff" + `"}}`, message: "invalid UTF-8"},
		{name: "a review without a request", body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, message: notTheRequest},
		{name: "a review whose request is null", body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`, message: notTheRequest},
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

func TestUnknownPath(t *testing.T) {
	recorder := httptest.NewRecorder()
	mux(t, newServer(t, ordinary, nil, inherit.Policy{})).ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/mutate/secrets", nil))
	NewWithT(t).Expect(recorder.Code).To(Equal(http.StatusNotFound))
}

// What is a review, if only just, is answered, with the request's UID.
func TestReviews(t *testing.T) {
	handler := mux(t, newServer(t, ordinary, nil, inherit.Policy{}))
	for _, tc := range []struct{ name, request, warning string }{
		{name: "an object that is a text", request: `"operation":"CREATE","object":"text"`, warning: "unmarshal JSON string"},
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

// TestTheWholeWay is one good request to each handler.
func TestTheWholeWay(t *testing.T) {
	with := ordinary.with(func(f *fleet) {
		f.machines = map[string]string{"ns/m": "{metadata: {labels: {node.cluster.x-k8s.io/a: '1'}}, spec: {clusterName: c}, status: {nodeRef: {name: node-1}}}"}
	})
	handler := mux(t, newServer(t, with, nil, inherit.Policy{}))
	for _, tc := range []struct {
		path    string
		request write
		allowed bool
		patch   string
	}{
		{path: PathOf(owners.MachineSets), request: write{kind: "MachineSet", object: "{metadata: {namespace: ns, " + byDeployment + "}, " + inCluster + "}"}, allowed: true, patch: `"path":"/metadata/labels"`},
		{path: PathOf(owners.Machines), request: write{kind: "Machine", object: machine(bySet)}, allowed: true, patch: `"path":"/metadata/labels"`},
		{path: NodesPath, request: write{kind: "Node", object: "{metadata: {name: node-1}, spec: {}}"}, allowed: true, patch: `"path":"/metadata/labels"`},
		{path: TaintsPath, request: write{kind: "Machine", object: "{spec: {taints: [{key: node.kubernetes.io/x, effect: NoSchedule, propagation: Always}]}}"}},
	} {
		t.Run(tc.path, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			review := ask(t, handler, tc.path, tc.request.review(t))
			Expect(review.Response.UID).To(BeEquivalentTo("uid"))
			Expect(review.Response.Allowed).To(Equal(tc.allowed))
			Expect(string(review.Response.Patch)).To(ContainSubstring(tc.patch))
			if !tc.allowed {
				Expect(review.Response.Result.Code).To(BeEquivalentTo(http.StatusUnprocessableEntity))
				Expect(review.Response.Result.Details.Causes).NotTo(BeEmpty())
			}
		})
	}
}

// review is the body of a request.
func (w write) review(t testing.TB) []byte {
	t.Helper()
	req := w.request(t)
	review := admissionv1.AdmissionReview{Request: &req.AdmissionRequest}
	review.APIVersion, review.Kind = "admission.k8s.io/v1", "AdmissionReview"
	body, err := json.Marshal(review)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return body
}
