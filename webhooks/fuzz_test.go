// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4" // with which the API server applies an admission response
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Every body that is posted to a handler gets an answer, or an error because it is no review. A mutating handler never denies a review. The
// answer equals controller-runtime's answer, and its patch fits the object.
func FuzzAdmissionReview(f *testing.F) {
	known := ordinary.with(func(f *fleet) {
		f.machines = map[string]string{
			"ns/m": "{metadata: {" + bySet + ", labels: {node.cluster.x-k8s.io/a: '1'}}, spec: {clusterName: c, providerID: 'aws://1', taints: [{key: gpu, effect: NoSchedule, propagation: Always}]}, status: {nodeRef: {name: node-1}}}",
		}
	})
	s := newServer(f, known, known.reader(f), inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled})
	handler := mux(f, s)
	for _, seed := range []write{
		{kind: "Machine", object: machine(bySet)},
		{kind: "Machine", object: machine(bySet + ", " + ownsTeam), old: machine(bySet + ", labels: {team: a}, " + ownsTeam)},
		{kind: "Machine", object: "{metadata: {annotations: {taints.heirloom.dev/always: 'typo,a=b:NoSchedule'}}, spec: {clusterName: c, taints: [{key: a, effect: Never}]}}"},
		{kind: "MachineSet", object: "{metadata: {namespace: ns, " + byDeployment + "}, spec: {clusterName: c, template: null}}"},
		{kind: "MachineSet", object: "{metadata: {namespace: ns, " + byDeployment + "}, spec: {clusterName: c, template: {metadata: {labels: {team: b}}}}}", old: "{}"},
		{kind: "Node", object: "{metadata: {name: node-1}, spec: {}}", user: "system:node:node-1"},
		{kind: "Node", object: "{metadata: {name: other}, spec: {providerID: 'aws://1', taints: []}}", old: "{spec: {taints: [{key: gpu, effect: NoSchedule}]}}"},
		{kind: "Cluster", object: "{spec: {topology: {workers: {machineDeployments: [{name: a, taints: [{key: node.kubernetes.io/x}]}]}}}}"},
		{kind: "AcmeControlPlane", object: "{spec: {machineTemplate: {taints: [{}]}}}", old: "{spec: null}"},
	} {
		f.Add(seed.review(f))
	}
	f.Add([]byte(``))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod"}`))
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"operation":"UPDATE","object":{"metadata":{"managedFields":[{}]}},"oldObject":null}}`))
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":null,"kind":null,"operation":"UPDATE","userInfo":null,"object":{"metadata":{"labels":null,"annotations":{"a":null},"ownerReferences":[null],"managedFields":[null]},"spec":{"taints":[null],"template":null}},"oldObject":{"metadata":null,"spec":null}}}`))
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"version":"v1","kind":"Node"},"operation":"CREATE","userInfo":{"username":"system:node:","groups":["system:nodes"]},"object":{"metadata":{"generateName":"n-"},"spec":{}}}}`))
	f.Add([]byte("apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nrequest:\n  uid: u\n  operation: CREATE\n  object: {metadata: {name: node-1}, spec: {}}\n"))
	f.Add([]byte("k8s\x00\n\x27\n\x13admission.k8s.io/v1\x12\x0fAdmissionReview\x12\x07\n\x05\n\x01u*\x00"))

	whole := string(write{kind: "Machine", object: machine(bySet + ", " + ownsTeam), old: machine(bySet + ", labels: {team: a}, " + ownsTeam)}.review(f))
	for what, twice := range map[string]string{
		`"uid":"uid"`: `"uid":"first","uid":"uid"`, `"kind":{`: `"kind":{"group":"g","version":"v"},"kind":{`, `"object":`: `"object":null,"object":`,
		`"userInfo":`: `"userInfo":{"username":"first","groups":["a","b"],"extra":{"a":["b"]}},"userInfo":`, `"request":`: `"request":{"uid":"first"},"request":`,
		`"labels":{`: `"labels":{"team":"first",`, `"request"`: `"response":{"uid":"u"},"request"`,
	} {
		f.Add([]byte(strings.Replace(whole, what, twice, 1)))
	}

	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range paths {
			if answer := post(handler, path, body); answer.Code == http.StatusBadRequest {
				continue
			}
			review := ask(t, handler, path, body)
			sameAnswer(t, s, path, body)
			if path != TaintsPath && !review.Response.Allowed {
				t.Errorf("%s denied a review: %+v", path, review.Response.Result)
			}
			if len(review.Response.Patch) > 0 {
				fits(t, path, body, review.Response.Patch)
			}
		}
	})
}

// fits applies a patch to the object of the review, as the API server does. As in the API server, objects with a patch have metadata and a
// spec.
func fits(t *testing.T, path string, body, patch []byte) {
	t.Helper()
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		return
	}
	var object struct {
		Metadata, Spec map[string]any
	}
	if err := json.Unmarshal(review.Request.Object.Raw, &object); err != nil || object.Metadata == nil || object.Spec == nil {
		return
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatalf("%s answered a patch that is none: %v\n%s", path, err, patch)
	}
	patched, err := decoded.Apply(review.Request.Object.Raw)
	if err != nil {
		t.Fatalf("%s answered a patch that does not fit: %v\n%s\n%s", path, err, patch, body)
	}
	if !json.Valid(patched) {
		t.Fatalf("%s made of the object what is no JSON: %s", path, patched)
	}
}
