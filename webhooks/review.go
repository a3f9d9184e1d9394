// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"io"
	"net/http"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// reviewer answers reviews as controller-runtime's webhook does, to the byte. It reads those that API servers send in one pass; finding
// out what a body is, and decoding it as that, costs controller-runtime a third of the whole request. What it does not understand it
// leaves to controller-runtime.
type reviewer struct {
	*admission.Webhook
}

// review is an AdmissionReview as API servers send it. The objects stay as they are until they are needed.
type review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Request    *struct {
		admissionv1.AdmissionRequest `json:",inline"`

		Object    jsontext.Value `json:"object"`
		OldObject jsontext.Value `json:"oldObject"`
		Options   jsontext.Value `json:"options"`
	} `json:"request"`
	Response jsontext.Value `json:"response"`
}

// ServeHTTP implements http.Handler.
func (h reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, ok := readReview(r)
	if !ok {
		h.Webhook.ServeHTTP(w, r)
		return
	}
	response := h.Handle(r.Context(), req)
	answer := admissionv1.AdmissionReview{Response: &response.AdmissionResponse}
	answer.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		ctrl.Log.WithName("admission").Error(err, "Unable to write the response")
	}
}

// readReview reads a review if it is an ordinary one. Otherwise the body can be read again.
func readReview(r *http.Request) (admission.Request, bool) {
	whole, ok := r.Body.(*wholeBody)
	if !ok || r.Header.Get("Content-Type") != "application/json" {
		return admission.Request{}, false
	}
	var read review
	err := jsonv2.Unmarshal(whole.bytes, &read)
	if err != nil || read.Request == nil || read.Response != nil || read.Kind != "AdmissionReview" || read.APIVersion != admissionv1.SchemeGroupVersion.String() {
		return admission.Request{}, false
	}
	req := admission.Request{AdmissionRequest: read.Request.AdmissionRequest}
	req.Object, req.OldObject, req.Options = extension(read.Request.Object), extension(read.Request.OldObject), extension(read.Request.Options)
	return req, true
}

func extension(value jsontext.Value) runtime.RawExtension {
	if value.Kind() == 'n' {
		return runtime.RawExtension{}
	}
	return runtime.RawExtension{Raw: value}
}

// wholeBody is a body that has been read.
type wholeBody struct {
	io.Reader
	bytes []byte
}

// Close implements io.Closer.
func (*wholeBody) Close() error { return nil }
