// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// inheritedPatch is what a Machine gets with its first write: labels, annotations, a taint, and the record of who owns them.
func inheritedPatch() []jsonpatch.Operation {
	labels, annotations := map[string]string{}, map[string]string{}
	fields := `{"f:metadata":{"f:annotations":{`
	for i := range 10 {
		labels[fmt.Sprintf("node.cluster.x-k8s.io/label-%d", i)] = "value"
		annotations[fmt.Sprintf("node.cluster.x-k8s.io/annotation-%d", i)] = "value"
		fields += fmt.Sprintf(`"f:node.cluster.x-k8s.io/annotation-%d":{},`, i)
	}
	fields = fields[:len(fields)-1] + `}},"f:spec":{"f:taints":{"k:{\"effect\":\"NoSchedule\",\"key\":\"gpu\"}":{".":{},"f:effect":{}}}}}`
	return []jsonpatch.Operation{
		jsonpatch.NewOperation("add", "/metadata/labels", labels),
		jsonpatch.NewOperation("add", "/metadata/annotations", annotations),
		jsonpatch.NewOperation("add", "/spec/taints", []any{map[string]any{"key": "gpu", "effect": "NoSchedule", "propagation": "Always"}}),
		jsonpatch.NewOperation("add", "/metadata/managedFields", []metav1.ManagedFieldsEntry{{
			Manager: "heirloom", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "cluster.x-k8s.io/v1beta2",
			Time: new(metav1.NewTime(time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC))), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		}}),
	}
}

// TestPatchesAreWrittenAsByControllerRuntime compares responses with those that controller-runtime completes.
func TestPatchesAreWrittenAsByControllerRuntime(t *testing.T) {
	for name, patch := range map[string][]jsonpatch.Operation{
		"no operation":      nil,
		"what is inherited": inheritedPatch(),
		"a removal":         {jsonpatch.NewOperation("remove", "/metadata/labels", nil)},
		"null":              {jsonpatch.NewOperation("add", "/spec/a", nil), jsonpatch.NewOperation("replace", "/spec/b", nil)},
		"no entry":          {jsonpatch.NewOperation("add", "/metadata/managedFields", []metav1.ManagedFieldsEntry(nil))},
		"an entry without fields": {jsonpatch.NewOperation("add", "/metadata/managedFields/1", metav1.ManagedFieldsEntry{
			Manager: "heirloom", FieldsV1: &metav1.FieldsV1{},
		})},
		"empty":         {jsonpatch.NewOperation("add", "/spec/a", map[string]any{}), jsonpatch.NewOperation("add", "/spec/b", "")},
		"numbers":       {jsonpatch.NewOperation("add", "/spec/a", int64(10)), jsonpatch.NewOperation("add", "/spec/b", 1e30)},
		"HTML":          {jsonpatch.NewOperation("add", "/metadata/annotations", map[string]string{"a": "<b>&\u2028'\""})},
		"controls":      {jsonpatch.NewOperation("add", "/metadata/annotations", map[string]string{"a": "\x00\x1f\x7f\n\t\b\ufffd"})},
		"many in order": {jsonpatch.NewOperation("add", "/metadata/labels", map[string]string{"b": "1", "a": "2", "B": "3", "é": "4", "a/b": "5"})},
		"a slash":       {jsonpatch.NewOperation("add", "/metadata/labels/a~1b", "<")},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{UID: "uid"}}
			plain := admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
				return admission.Patched("", patch...).WithWarnings("a warning")
			})
			theirs := (&admission.Webhook{Handler: plain}).Handle(t.Context(), req)
			ours := (&admission.Webhook{Handler: written{plain}}).Handle(t.Context(), req)
			g.Expect(string(ours.Patch)).To(Equal(string(theirs.Patch)))
			g.Expect(ours.AdmissionResponse).To(Equal(theirs.AdmissionResponse))
			g.Expect(ours.Patches).To(BeEmpty(), "controller-runtime would write them again")
		})
	}
}

// TestPatchThatCannotBeWritten: controller-runtime refuses it, with the reason.
func TestPatchThatCannotBeWritten(t *testing.T) {
	for name, value := range map[string]any{"not a number": math.NaN(), "its own error": broken{}} {
		t.Run(name, func(t *testing.T) {
			plain := admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
				return admission.Patched("", jsonpatch.NewOperation("add", "/spec/a", value))
			})
			theirs := (&admission.Webhook{Handler: plain}).Handle(t.Context(), admission.Request{})
			ours := (&admission.Webhook{Handler: written{plain}}).Handle(t.Context(), admission.Request{})
			NewWithT(t).Expect(ours).To(Equal(theirs))
			NewWithT(t).Expect(ours.Allowed).To(BeFalse())
		})
	}
}

type broken struct{}

func (broken) MarshalJSON() ([]byte, error) { return nil, errors.New("broken") }

// BenchmarkPatch compares how long it takes to write a patch with what controller-runtime takes (metric ×controller-runtime).
func BenchmarkPatch(b *testing.B) {
	patch := inheritedPatch()
	var ours, theirs time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := json.Marshal(patch); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		if _, err := patchOf(patch); err != nil {
			b.Fatal(err)
		}
		theirs, ours = theirs+middle.Sub(start), ours+time.Since(middle)
	}
	b.ReportMetric(ours.Seconds()/theirs.Seconds(), "×controller-runtime")
	b.ReportMetric(0, "ns/op")
}
