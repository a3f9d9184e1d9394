// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPatchesAreRenderedAsByEncodingJSON: what is written at once is what controller-runtime would write.
func TestPatchesAreRenderedAsByEncodingJSON(t *testing.T) {
	odd := "\u2028\u2029<b>&\"'\\/\b\f\n\r\t\x00\x1f\x7f\xff ü €"
	entry := metav1.ManagedFieldsEntry{
		Manager: odd, Operation: "Apply", APIVersion: "v1", Time: new(metav1.NewTime(time.Unix(1, 2).In(time.FixedZone("", 3600)))),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:a":{}}}}`),
	}
	html, timeless, of := entry, entry, entry
	html.FieldsV1, timeless.Time, of.Subresource = metav1.NewFieldsV1(`{"f:<":{}}`), nil, "status"
	for name, value := range map[string]any{
		"HTML":  map[string]string{"a": "<", "b": ">", "c": "&", "d": "\"", "e": "\\", "f": "\x7f", "g": "\u2028"},
		"texts": map[string]string{"b": odd, "a": "1", odd: ""}, "values": map[string]any{"b": odd, "a": "", "n": int64(3), "m": nil},
		"nothing": nil, "no map": map[string]string(nil), "an empty map": map[string]any{}, "a text": odd, "a number": int64(5),
		"taints": []corev1.Taint{{Key: "a", Effect: "NoSchedule"}}, "our entry": entry, "an entry with HTML": html,
		"an entry without a time": timeless, "an entry of a subresource": of, "entries": []metav1.ManagedFieldsEntry{entry},
	} {
		for _, op := range []string{"add", "remove", "replace"} {
			operations := []jsonpatch.Operation{jsonpatch.NewOperation("add", "/a", "b"), jsonpatch.NewOperation(op, "/metadata/labels", value)}
			want, err := json.Marshal(operations)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			patch, err := renderPatch(operations)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(string(patch)).To(Equal(string(want)), "%s %s", op, name)
		}
	}
}
