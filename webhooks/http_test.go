// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// paths are those of every handler; the last one refuses, the others must not.
var paths = []string{
	ControlPlanesPath, MachineDeploymentsPath, MachinePoolsPath, MachineSetsPath, MachinesPath, ExternalPath, NodesPath, TaintsPath,
}

// mux is the webhook server as it is wired, without its listener.
func mux(t testing.TB, s server) http.Handler {
	t.Helper()
	webhookServer := webhook.NewServer(webhook.Options{})
	Register(webhookServer, s.Dependencies)
	return webhookServer.WebhookMux()
}

// post sends a body the way an API server does, and reads the answer, which must be a review whatever the body was.
func post(t testing.TB, handler http.Handler, path, contentType string, body []byte) (review admissionv1.AdmissionReview, status int) {
	t.Helper()
	Expect := NewWithT(t).Expect
	request := httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(body)))
	request.Header.Set("Content-Type", contentType)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	Expect(json.Unmarshal(recorder.Body.Bytes(), &review)).To(Succeed(), "the answer is %q", recorder.Body)
	Expect(review.Response).NotTo(BeNil())
	return review, recorder.Code
}

// TestWhatIsNoReview: such a request is answered clearly. It is no denial: an API server takes an answer without kind
// for a failure of the webhook, and the failure policy is to let the write pass.
func TestWhatIsNoReview(t *testing.T) {
	handler := mux(t, newServer(t, ordinary, nil, inherit.Policy{}))
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u"}}`
	for _, tc := range []struct {
		name, contentType, body string
		code                    int32
		message                 string
	}{
		{name: "half a review", body: `{"apiVersion":"admission.k8s.io/v1","kind":`, code: http.StatusBadRequest, message: "json"},
		{name: "no JSON", body: "hello", code: http.StatusBadRequest, message: "json"},
		{name: "a review in a form", contentType: "application/x-www-form-urlencoded", body: review, code: http.StatusBadRequest, message: "contentType=application/x-www-form-urlencoded, expected application/json"},
		{name: "a review without a content type", contentType: "-", body: review, code: http.StatusBadRequest, message: "contentType=, expected application/json"},
		{name: "a request that is a text", body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":"text"}`, code: http.StatusBadRequest, message: "cannot unmarshal string"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, path := range paths {
				Expect := NewWithT(t).Expect
				contentType := strings.TrimSuffix(tc.contentType, "-")
				if tc.contentType == "" {
					contentType = "application/json"
				}
				review, status := post(t, handler, path, contentType, []byte(tc.body))
				Expect(status).To(Equal(http.StatusOK))
				Expect(review.Kind).To(BeEmpty())
				Expect(review.Response.Allowed).To(BeFalse())
				Expect(review.Response.Patch).To(BeEmpty())
				Expect(review.Response.Result.Code).To(Equal(tc.code))
				Expect(review.Response.Result.Message).To(ContainSubstring(tc.message))
			}
		})
	}
}

func TestRequestWithoutABody(t *testing.T) {
	Expect := NewWithT(t).Expect
	handler := mux(t, newServer(t, ordinary, nil, inherit.Policy{}))
	for _, path := range paths {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
		Expect(recorder.Body.String()).To(ContainSubstring("request body is empty"))
	}
}

func TestUnknownPath(t *testing.T) {
	recorder := httptest.NewRecorder()
	mux(t, newServer(t, ordinary, nil, inherit.Policy{})).ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/mutate/secrets", nil))
	NewWithT(t).Expect(recorder.Code).To(Equal(http.StatusNotFound))
}

// TestReviews: what is a review, if only just, is answered as one of the same version, with the request's UID.
func TestReviews(t *testing.T) {
	handler := mux(t, newServer(t, ordinary, nil, inherit.Policy{}))
	for _, tc := range []struct {
		name, review string
		apiVersion   string
		uid          string
		warning      string
	}{
		{name: "a body of no length", apiVersion: "admission.k8s.io/v1", warning: "the admission request has no object"},
		{name: "a review without a request", review: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, apiVersion: "admission.k8s.io/v1", warning: "the admission request has no object"},
		{name: "a review whose request is null", review: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`, apiVersion: "admission.k8s.io/v1", warning: "the admission request has no object"},
		{name: "a review of the old version", review: `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":{}}}`, apiVersion: "admission.k8s.io/v1beta1", uid: "u"},
		{name: "a review of a version to come", review: `{"apiVersion":"admission.k8s.io/v9","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":{}}}`, apiVersion: "admission.k8s.io/v9", uid: "u"},
		{name: "an object that is a text", review: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":"text"}}`, apiVersion: "admission.k8s.io/v1", uid: "u", warning: "cannot unmarshal string"},
		{name: "an operation that nobody knows", review: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"EXPLODE","object":{}}}`, apiVersion: "admission.k8s.io/v1", uid: "u"},
		{name: "a delete, which has no object", review: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"DELETE","object":null,"oldObject":{}}}`, apiVersion: "admission.k8s.io/v1", uid: "u", warning: "the admission request has no object"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, path := range paths {
				Expect := NewWithT(t).Expect
				review, status := post(t, handler, path, "application/json", []byte(tc.review))
				Expect(status).To(Equal(http.StatusOK))
				Expect(review.Kind).To(Equal("AdmissionReview"))
				Expect(review.APIVersion).To(Equal(tc.apiVersion))
				Expect(review.Response.UID).To(BeEquivalentTo(tc.uid))
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
		{path: MachineSetsPath, request: write{kind: "MachineSet", object: "{metadata: {namespace: ns, " + byDeployment + "}, " + inCluster + "}"}, allowed: true, patch: `"path":"/metadata/labels"`},
		{path: MachinesPath, request: write{kind: "Machine", object: machine(bySet)}, allowed: true, patch: `"path":"/metadata/labels"`},
		{path: NodesPath, request: write{kind: "Node", object: "{metadata: {name: node-1}, spec: {}}"}, allowed: true, patch: `"path":"/metadata/labels"`},
		{path: TaintsPath, request: write{kind: "Machine", object: "{spec: {taints: [{key: node.kubernetes.io/x, effect: NoSchedule, propagation: Always}]}}"}},
	} {
		t.Run(tc.path, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			review, _ := post(t, handler, tc.path, "application/json", tc.request.review(t))
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
