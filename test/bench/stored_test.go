// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// created is an object as an API server sends it to webhooks when it is created: with what the creator owns of it.
func created(b *testing.B, object client.Object) *unstructured.Unstructured {
	b.Helper()
	all := convert[unstructured.Unstructured](object)
	fields, err := fieldpath.SetFromValue(value.NewValueInterface(all.Object)).ToJSON()
	if err != nil {
		b.Fatal(err)
	}
	all.SetUID("the-object")
	all.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	all.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: all.GetAPIVersion(),
		Time: new(metav1.Now()), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(fields)),
	}})
	return all
}

// patched is the object of a request with the answer's patch.
func patched(b *testing.B, handler http.Handler, path string, request admissionv1.AdmissionRequest) *unstructured.Unstructured {
	b.Helper()
	patch, err := jsonpatch.DecodePatch(answered(b, handler, path, reviewOf(b, request)).Response.Patch)
	if err != nil {
		b.Fatal(err)
	}
	after, err := patch.Apply(request.Object.Raw)
	if err != nil {
		b.Fatal(err)
	}
	return convertRaw[unstructured.Unstructured](after)
}

// answered posts a review and returns the answer.
func answered(b *testing.B, handler http.Handler, path string, body []byte) admissionv1.AdmissionReview {
	b.Helper()
	recorder := httptest.NewRecorder()
	post := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	post.Header.Set("Content-Type", "application/json")
	handler.ServeHTTP(recorder, post)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil {
		b.Fatal(err)
	}
	return review
}

func reviewOf(b *testing.B, request admissionv1.AdmissionRequest) []byte {
	b.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &request,
	})
	if err != nil {
		b.Fatal(err)
	}
	return body
}

// fullNode is a Node with the status that kubelets register with.
func fullNode(node *corev1.Node) *corev1.Node {
	full := node.DeepCopy()
	full.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	for i := range 5 {
		full.Status.Conditions = append(full.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(fmt.Sprintf("Condition%d", i)), Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
			Message: "kubelet has sufficient memory available", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		})
	}
	for i := range 10 {
		full.Status.Images = append(full.Status.Images, corev1.ContainerImage{
			Names: []string{fmt.Sprintf("registry.example.com/image-%d@sha256:%064d", i, i)}, SizeBytes: 1 << 20,
		})
	}
	return full
}
