// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"errors"
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

func newReviewer(h failOpen) reviewer {
	return reviewer{&admission.Webhook{Handler: written{h}}}
}

// review is an AdmissionReview as API servers send it. The objects stay as they are until they are needed.
type review struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Request    request `json:"request"`
	Response   part    `json:"response"`
}

// errTwice is about a name that comes twice, where it would matter which of them counts.
var errTwice = errors.New("it comes twice")

// request is that of a review; read is nil if it is null.
type request struct {
	there bool
	read  *struct {
		admissionv1.AdmissionRequest `json:",inline"`

		Object    part `json:"object"`
		OldObject part `json:"oldObject"`
		Options   part `json:"options"`
	}
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (r *request) UnmarshalJSONFrom(decoder *jsontext.Decoder) error {
	if r.there {
		return errTwice
	}
	r.there = true
	return jsonv2.UnmarshalDecode(decoder, &r.read) //nolint:wrapcheck // nobody reads it: the body is left to controller-runtime then
}

// part is where in a body a value is. The objects are most of a body; they are not copied.
type part struct{ from, to int64 }

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (p *part) UnmarshalJSONFrom(decoder *jsontext.Decoder) error {
	if p.to != 0 {
		return errTwice
	}
	value, err := decoder.ReadValue()
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	p.to = decoder.InputOffset()
	p.from = p.to - int64(len(value))
	return nil
}

// of returns the value, if it is there and not null.
func (p part) of(body []byte) runtime.RawExtension {
	if p.to == 0 || body[p.from] == 'n' {
		return runtime.RawExtension{}
	}
	return runtime.RawExtension{Raw: body[p.from:p.to:p.to]}
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
	// To look for names that come twice takes half of the time. In the objects it is done when they are decoded; around them the last
	// one counts, as for controller-runtime.
	err := jsonv2.Unmarshal(whole.bytes, &read, jsontext.AllowDuplicateNames(true))
	if err != nil || read.Request.read == nil || read.Response != (part{}) || read.Kind != "AdmissionReview" || read.APIVersion != admissionv1.SchemeGroupVersion.String() {
		return admission.Request{}, false
	}
	sent := read.Request.read
	req := admission.Request{AdmissionRequest: sent.AdmissionRequest}
	req.Object, req.OldObject, req.Options = sent.Object.of(whole.bytes), sent.OldObject.of(whole.bytes), sent.Options.of(whole.bytes)
	return req, true
}

// wholeBody is a body that has been read.
type wholeBody struct {
	io.Reader
	bytes []byte
}

// Close implements io.Closer.
func (*wholeBody) Close() error { return nil }
