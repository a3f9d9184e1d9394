// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	workloadwebhook "github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

var (
	red  = types.NamespacedName{Namespace: "ns", Name: "red"}
	blue = types.NamespacedName{Namespace: "other", Name: "blue"}
)

// identity is a Cluster as the fleet has it: its UID is its name.
func identity(cluster types.NamespacedName) workloadwebhook.Identity {
	return workloadwebhook.Identity{NamespacedName: cluster, UID: types.UID(cluster.Name)}
}

// abroad is two Clusters with a Machine each. Both have a Node node-1; their addresses, too, are the same.
var abroad = fleet{
	clusters: map[string]string{"ns/red": "{}", "other/blue": "{}"},
	machines: map[string]string{
		"ns/m-red":      "{metadata: {labels: {node.cluster.x-k8s.io/color: red}}, spec: {clusterName: red, taints: [{key: red, effect: NoSchedule, propagation: Always}]}, status: {nodeRef: {name: node-1}, addresses: [{type: InternalIP, address: 10.0.0.1}]}}",
		"other/m-blue":  "{metadata: {labels: {node.cluster.x-k8s.io/color: blue}}, spec: {clusterName: blue, taints: [{key: blue, effect: NoSchedule, propagation: Always}]}, status: {nodeRef: {name: node-1}, addresses: [{type: InternalIP, address: 10.0.0.1}]}}",
		"other/m-blue2": "{metadata: {labels: {node.cluster.x-k8s.io/color: navy}}, spec: {clusterName: blue, providerID: 'acme://2'}, status: {nodeRef: {name: node-2}, addresses: [{type: InternalIP, address: 10.0.0.2}]}}",
	},
}

func newKey(b byte) []byte { return bytes.Repeat([]byte{b}, workloadwebhook.KeySize) }

// outpost is the handler for workload clusters behind an HTTP server, as API servers meet it.
type outpost struct {
	server
	http *httptest.Server
}

// newOutpost serves with the key 1, either the handler alone or as it is wired, on the webhook server.
func newOutpost(t *testing.T, s server, onServer bool) outpost {
	t.Helper()
	o := outpost{server: s}
	key := func(context.Context) []byte { return newKey(1) }
	handler := newWorkload(s.Dependencies, key)
	if onServer {
		webhookServer := webhook.NewServer(webhook.Options{})
		RegisterWorkload(webhookServer, s.Dependencies, key)
		handler = webhookServer.WebhookMux()
	}
	o.http = httptest.NewServer(handler)
	t.Cleanup(o.http.Close)
	return o
}

// denied is how many requests were denied.
func (o outpost) denied(t *testing.T) int {
	t.Helper()
	return len(o.countedIn(t, "heirloom_workload_admission_denied_total"))
}

// answered is all that a caller gets to see.
type answered struct {
	status int
	header http.Header
	body   string
}

func (o outpost) send(t *testing.T, method, path string, body []byte) answered {
	t.Helper()
	Expect := NewWithT(t).Expect
	request, err := http.NewRequestWithContext(t.Context(), method, o.http.URL+path, bytes.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	Expect(request.URL.RequestURI()).To(Equal(path), "it is sent as it is written")
	request.Header.Set("Content-Type", "application/json")
	noRedirects := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := noRedirects.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	response.Header.Del("Date")
	return answered{status: response.StatusCode, header: response.Header, body: string(content)}
}

// ask sends a request about a Node and returns the response.
func (o outpost) ask(t *testing.T, path string, w write, change func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionResponse {
	t.Helper()
	Expect := NewWithT(t).Expect
	got := o.send(t, http.MethodPost, path, nodeReview(t, w, change))
	Expect(got.status).To(Equal(http.StatusOK), got.body)
	var review admissionv1.AdmissionReview
	Expect(json.Unmarshal([]byte(got.body), &review)).To(Succeed())
	Expect(review.Response).To(HaveField("UID", BeEquivalentTo("uid")))
	return review.Response
}

// nodeReview is the body of a request about a Node as an API server sends it.
func nodeReview(t *testing.T, w write, change func(*admissionv1.AdmissionRequest)) []byte {
	t.Helper()
	w.kind = "Node"
	req := w.request(t)
	req.Namespace, req.Resource = "", metav1.GroupVersionResource{Version: "v1", Resource: "nodes"}
	if change != nil {
		change(&req.AdmissionRequest)
	}
	review := admissionv1.AdmissionReview{Request: &req.AdmissionRequest}
	review.APIVersion, review.Kind = "admission.k8s.io/v1", "AdmissionReview"
	body, err := json.Marshal(review)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return body
}

const bare = "{metadata: {name: node-1}, spec: {}, status: {addresses: [{type: InternalIP, address: 10.0.0.1}]}}"
