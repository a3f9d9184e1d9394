// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"

	jsonv1 "github.com/go-json-experiment/json/v1"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// written writes the patch of a response as controller-runtime would, to the byte, in less than half of the time (BenchmarkPatch):
// jsonpatch.Operation has a MarshalJSON of its own, so encoding/json writes each operation, and reads and copies it again.
type written struct{ admission.Handler }

// Handle implements admission.Handler.
func (h written) Handle(ctx context.Context, req admission.Request) admission.Response {
	response := h.Handler.Handle(ctx, req)
	if len(response.Patches) == 0 {
		return response
	}
	if patch, err := patchOf(response.Patches); err == nil { // otherwise controller-runtime says what is wrong
		response.Patch, response.PatchType, response.Patches = patch, new(admissionv1.PatchTypeJSONPatch), nil
	}
	return response
}

// patchOf returns operations as JSON, as encoding/json writes them.
func patchOf(operations []jsonpatch.Operation) ([]byte, error) {
	plain := make([]operation, len(operations))
	for i, o := range operations {
		plain[i] = operation{Op: o.Operation, Path: o.Path}
		if o.Value != nil || o.Operation == "add" || o.Operation == "replace" {
			plain[i].Value = &o.Value
		}
	}
	return jsonv1.Marshal(plain) //nolint:wrapcheck // nobody reads it
}

// operation is a jsonpatch.Operation without methods.
type operation struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	// Value may be nil, and is written as null then. No value at all is left out.
	Value *any `json:"value,omitempty"`
}
