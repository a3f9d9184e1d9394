// SPDX-License-Identifier: Apache-2.0

package equal

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
)

// hooks are admission webhooks: the path of a webhook's URL decides its answer.
type hooks struct {
	url, ca string
	mu      sync.Mutex
	reviews []map[string]any
}

// patches are JSON patches, by path.
var patches = map[string]string{
	"label":   `[{"op":"add","path":"/metadata/labels/added","value":"yes"}]`,
	"invalid": `[{"op":"add","path":"/metadata/labels/bad","value":"not a label!"}]`,
	"node":    `[{"op":"add","path":"/metadata/labels/node-restriction.kubernetes.io~1team","value":"a"}]`,
	"empty":   `[{"op":"add","path":"/metadata/annotations","value":{}}]`,
	"bare":    `[{"op":"add","path":"/metadata/managedFields","value":[]}]`,
	"wrong": `[{"op":"add","path":"/metadata/managedFields/0","value":{"manager":"inheritor","operation":"Apply","apiVersion":"","fieldsType":"FieldsV1",` +
		`"fieldsV1":{}}}]`,
	"nopatch": `{"metadata":{}}`,
	"nowhere": `[{"op":"replace","path":"/spec/nothing/at/all","value":"x"}]`,
	"broken":  `[{"op":"add","path":"/spec","value":"no object"}]`,
	"unknown": `[{"op":"add","path":"/spec/unknown","value":"x"}]`,
	"rename":  `[{"op":"replace","path":"/metadata/name","value":"other"}]`,
}

// patch returns the patch of a webhook; some patches depend on the object.
func patch(path string, o *unstructured.Unstructured) string {
	switch path {
	case "count":
		return fmt.Sprintf(`[{"op":"add","path":"/metadata/labels/counted","value":"%d"}]`, len(o.GetLabels()))
	case "taint":
		if taints, _, _ := unstructured.NestedSlice(o.Object, "spec", "taints"); len(taints) < 2 {
			return `[{"op":"add","path":"/spec/taints/-","value":{"key":"inherited","effect":"NoSchedule"}}]`
		}
	case "entry":
		if !slices.ContainsFunc(o.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == "inheritor" }) {
			return `[{"op":"add","path":"/metadata/labels/inherited","value":"yes"},{"op":"add","path":"/metadata/managedFields/0","value":{"manager":"inheritor",` +
				`"operation":"Apply","apiVersion":"` + o.GetAPIVersion() + `","time":"2000-01-01T00:00:00Z","fieldsType":"FieldsV1",` +
				`"fieldsV1":{"f:metadata":{"f:labels":{"f:inherited":{}}}}}}]`
		}
	}
	return patches[path]
}

// answer returns the answer of a webhook, or "" for an error.
func (h *hooks) answer(path string, body []byte) string {
	review := &admissionv1.AdmissionReview{}
	var raw struct {
		Request map[string]any `json:"request"`
	}
	object := &unstructured.Unstructured{}
	if json.Unmarshal(body, review) != nil || json.Unmarshal(body, &raw) != nil || json.Unmarshal(review.Request.Object.Raw, &object.Object) != nil {
		return ""
	}
	if user, ok := raw.Request["userInfo"].(map[string]any); ok {
		raw.Request["userInfo"] = user["username"]
	}
	raw.Request["webhook"] = path
	h.mu.Lock()
	h.reviews = append(h.reviews, raw.Request)
	h.mu.Unlock()
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	switch {
	case path == "garbage":
		return "this is no review"
	case path == "other":
		response.UID = "another"
	case path == "deny":
		response.Allowed, response.Result = false, &metav1.Status{Message: "not on my watch", Code: http.StatusTeapot}
	case strings.HasPrefix(path, "probe-"), path == "warn":
		response.Warnings = []string{path}
	case path == "error":
		return ""
	}
	if patch := patch(path, object); patch != "" {
		response.Patch, response.PatchType = []byte(patch), ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	review.Request, review.Response = nil, response
	text, _ := json.Marshal(review)
	return string(text)
}

// take returns the requests to webhooks since the last call.
func (h *hooks) take() []map[string]any {
	h.mu.Lock()
	defer h.mu.Unlock()
	reviews := h.reviews
	h.reviews = nil
	return reviews
}

// call is the transport of the API server in memory to the webhooks.
func (h *hooks) call(_ context.Context, configuration admissionregistrationv1.MutatingWebhook, body []byte) ([]byte, error) {
	address, err := url.Parse(*configuration.ClientConfig.URL)
	if err != nil || address.Port() == "1" {
		return nil, fmt.Errorf("no route to %s", *configuration.ClientConfig.URL)
	}
	if answer := h.answer(strings.Trim(address.Path, "/"), body); answer != "" {
		return []byte(answer), nil
	}
	return nil, fmt.Errorf("%s fails", address.Path)
}

// serve serves the webhooks to a real API server.
func (h *hooks) serve() *httptest.Server {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if answer := h.answer(strings.Trim(r.URL.Path, "/"), body); answer != "" {
			_, _ = io.WriteString(w, answer)
			return
		}
		http.Error(w, "fails", http.StatusInternalServerError)
	}))
	h.url = server.URL
	h.ca = base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return server
}

func (h *hooks) addresses(body string) string {
	address, ca := h.url, h.ca
	if address == "" {
		address, ca = "https://127.0.0.1", base64.StdEncoding.EncodeToString([]byte("any"))
	}
	return strings.NewReplacer("$hooks", address, "$ca", ca).Replace(body)
}

// waitForHooks waits until a configuration is in force: it sends a probe to the webhook that hook adds.
func (s *side) waitForHooks(ctx context.Context, name string) {
	probe := step{Name: "probe", Do: "POST configmaps?dryRun=All", Body: "{apiVersion: v1, kind: ConfigMap, metadata: {name: probe, labels: {probe: " + name + "}}}"}
	s.Eventually(func() string {
		response := s.send(ctx, probe)
		_ = response.Body.Close()
		return fmt.Sprint(response.Header["Warning"])
	}, "30s", "50ms").Should(ContainSubstring("probe-" + name))
	s.hooks.take()
}

// configuration returns the step that creates a configuration with webhooks for objects that are labeled with its name. Each webhook is a line
// of YAML; one more webhook answers probes.
func (of step) configuration() step {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: %s}\nwebhooks:\n", of.Hook)
	for i, line := range append(of.Webhooks, "probe-"+of.Hook+", objectSelector: {matchLabels: {probe: "+of.Hook+"}}") {
		at, more, _ := strings.Cut(line, ", ")
		address := "$hooks/" + at
		if at == "away" {
			address = "https://127.0.0.1:1/away"
		}
		if more != "" {
			more = ", " + more
		}
		if !strings.Contains(more, "objectSelector") {
			more += ", objectSelector: {matchLabels: {hook: " + of.Hook + "}}"
		}
		if !strings.Contains(more, "sideEffects") {
			more += ", sideEffects: None"
		}
		fmt.Fprintf(&b, "- {name: h%d.%s.example.com, clientConfig: {url: '%s', caBundle: $ca}, admissionReviewVersions: [v1]%s, "+
			"rules: [{operations: [CREATE, UPDATE], apiGroups: ['*'], apiVersions: ['*'], resources: ['*', 'machines/status', 'nodes/status']}]}\n", i, of.Hook, address, more)
	}
	of.Name, of.Do, of.Body = "webhook "+of.Hook, "POST mutatingwebhookconfigurations", b.String()
	return of
}
