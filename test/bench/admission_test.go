// SPDX-License-Identifier: Apache-2.0

// Package bench measures what Heirloom costs, always as a ratio to a baseline that is measured in the same run, in turn
// with it, so that the result does not depend on the machine.
package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/webhooks"
)

const noOpPath = "/no-op"

// BenchmarkAdmission reports what an admission request costs in Heirloom's server, as a multiple of the same request to
// controller-runtime's webhook with a handler that only says "allowed" (metric ×no-op). TLS and the network are left out
// of both.
func BenchmarkAdmission(b *testing.B) {
	world := newWorld()
	server := newServer(b, world)
	labelled := newWorld()
	for i := range 10_000 {
		labelled.ms.Spec.Template.Labels[fmt.Sprintf("label-%d", i)] = "value"
	}
	kubelet := authenticationv1.UserInfo{Username: "system:node:" + world.node.Name, Groups: []string{"system:nodes"}}
	for _, tc := range []struct {
		name, path string
		request    admissionv1.AdmissionRequest
	}{
		{"Machine/create, 15 keys and 2 taints injected", webhooks.PathOf(owners.Machines), create("Machine", sentByClusterAPI(world.bare))},
		{"Machine/update, nothing to do", webhooks.PathOf(owners.Machines), update("Machine", world.inherited, world.inherited)},
		{"Node/create by its kubelet", webhooks.NodesPath, by(kubelet, create("Node", world.node))},
	} {
		b.Run(tc.name, func(b *testing.B) { pair(b, server, tc.path, tc.request) })
	}
	b.Run("Machine/create, 10,000 labels injected", func(b *testing.B) {
		pair(b, newServer(b, labelled), webhooks.PathOf(owners.Machines), create("Machine", sentByClusterAPI(labelled.bare)))
	})
}

// pair measures a request against the same request to the no-op webhook, in turn.
func pair(b *testing.B, server http.Handler, path string, request admissionv1.AdmissionRequest) {
	b.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &request,
	})
	if err != nil {
		b.Fatal(err)
	}
	expectAllowed(b, server, path, body)
	var subject, baseline time.Duration
	b.ReportAllocs()
	for b.Loop() {
		baseline += measure(server, noOpPath, body)
		subject += measure(server, path, body)
	}
	b.ReportMetric(float64(subject)/float64(baseline), "×no-op")
}
