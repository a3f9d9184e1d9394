// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

// TestReviewsAreAnsweredAsByControllerRuntime: reading a review at once changes nothing of the answer, whatever the review is.
func TestReviewsAreAnsweredAsByControllerRuntime(t *testing.T) {
	s := newServer(t, ordinary, nil, inherit.Policy{})
	whole := string(write{kind: "Machine", object: machine(bySet + ", " + ownsTeam), old: machine(bySet + ", labels: {team: a}, " + ownsTeam)}.review(t))
	for name, body := range map[string]string{
		"an update":                whole,
		"a create":                 string(write{kind: "MachineSet", object: "{metadata: {namespace: ns, " + byDeployment + "}, " + inCluster + "}"}.review(t)),
		"a kubelet's Node":         string(write{kind: "Node", object: "{metadata: {name: node-1}, spec: {}}", user: "system:node:node-1"}.review(t)),
		"a refused taint":          string(write{kind: "Machine", object: "{spec: {taints: [{key: node.kubernetes.io/x, effect: NoSchedule}]}}"}.review(t)),
		"a name that comes twice":  strings.Replace(whole, `"uid":"uid"`, `"uid":"first","uid":"uid"`, 1),
		"a kind that comes twice":  strings.Replace(whole, `"kind":{`, `"kind":{"group":"g","version":"v"},"kind":{`, 1),
		"a user who comes twice":   strings.Replace(whole, `"userInfo":`, `"userInfo":{"username":"first","groups":["a","b"],"extra":{"a":["b"]}},"userInfo":`, 1),
		"a group that comes twice": strings.Replace(whole, `"userInfo":{`, `"userInfo":{"extra":{"a":["b","c"],"a":["d"]},"groups":["a","b"],"groups":["c"],`, 1),
		"an object twice":          strings.Replace(whole, `"object":`, `"object":{"metadata":{}},"object":`, 1),
		"an object, then null":     strings.Replace(whole, `"oldObject":`, `"object":null,"oldObject":`, 1),
		"null, then an object":     strings.Replace(whole, `"object":`, `"object":null,"object":`, 1),
		"two requests":             strings.Replace(whole, `"request":`, `"request":{"uid":"first","name":"first"},"request":`, 1),
		"a request, then another":  strings.TrimSuffix(whole, "}") + `,"request":{"uid":"other"}}`,
		"a label that comes twice": strings.Replace(whole, `"labels":{`, `"labels":{"team":"first",`, 1),
		"a response, too":          strings.Replace(whole, `"request"`, `"response":{"uid":"u"},"request"`, 1),
		"no object":                `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","object":null}}`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range paths {
				sameAnswer(t, s, path, []byte(body))
			}
		})
	}
}

// sameAnswer compares the answer to a review with that of controller-runtime's handler.
func sameAnswer(t *testing.T, s server, path string, body []byte) {
	t.Helper()
	s.sameAnswerBy(t, decidersOf(s.Dependencies)[path], path, body)
}

// sameAnswerBy compares the answer of a decider with that of the same one behind controller-runtime's handler, and returns it. Both are
// given at the same time, which is in the managed fields, and reviews of different lengths at different times.
func (s server) sameAnswerBy(t *testing.T, decides decider, path string, body []byte) (answer string) {
	t.Helper()
	plain := &admission.Webhook{Handler: failOpen{decider: decides, metrics: s.Metrics}}
	quick := newReviewer(managementRoom, LongestAnswer, s.Metrics.AdmissionRejected(metrics.ManagementServer)).of(failOpen{decider: decides, metrics: s.Metrics})
	ask := func(handler http.Handler) string {
		request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		answer, err := io.ReadAll(recorder.Result().Body)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return string(answer)
	}
	synctest.Test(t, func(t *testing.T) {
		<-time.After(time.Duration(len(body)) * time.Second)
		answer = ask(plain)
		NewWithT(t).Expect(ask(quick)).To(Equal(answer))
		NewWithT(t).Expect(ask(quick)).To(Equal(answer), "once more")
	})
	return answer
}
