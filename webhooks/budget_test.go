// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// lostNode is an update of a Node without the entries that its Machine declares, which makes the webhook read live.
var lostNode = write{kind: "Node", object: "{metadata: {name: node-1}, spec: {}}", old: "{metadata: {name: node-1}, spec: {}}"}

// usually is the longest wait of the webhooks if the caller gives no timeout.
const usually = 1800 * time.Millisecond

// A caller gets its answer within its timeout, and no caller makes the webhooks wait longer than an API server would. Without an answer to
// the live reads in time, the webhook decides with the cache; if the cache is not enough, the object passes unchanged.
func TestAnAnswerComesInTheCallersTime(t *testing.T) {
	removal := write{kind: "Machine", object: machine(bySet), old: machine(bySet + ", labels: {team: a}")}
	missing := ordinary.with(func(f *fleet) { f.sets = nil })
	proven := webhook.Path(newKey(1), identity(red))
	for _, tc := range []struct {
		timeout              string
		management, workload time.Duration
	}{
		{"", usually, usually},
		{"2s", usually, usually},
		{"1s", 900 * time.Millisecond, 900 * time.Millisecond},
		{"10s", 9 * time.Second, usually},
		{"30s", 27 * time.Second, usually},
		{"24h", 27 * time.Second, usually},
		{"300ms", 200 * time.Millisecond, 200 * time.Millisecond},
		{"1ms", 0, 0},
		{"-5s", usually, usually},
		{"0", usually, usually},
		{"9999999999h", usually, usually},
		{"soon&timeout=30s", usually, usually},
	} {
		t.Run(tc.timeout, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect, query := NewWithT(t).Expect, "?timeout="+tc.timeout
				takes := func(do func()) time.Duration {
					start := time.Now()
					do()
					return time.Since(start)
				}
				Expect(takes(func() {
					s := newServer(t, missing, silent.reader(t), inherit.Policy{})
					response := ask(t, mux(t, s), "/mutate/machines"+query, write{kind: "Machine", object: machine(bySet)}.review(t)).Response
					Expect(response.Allowed).To(BeTrue())
					Expect(response.Patch).To(BeEmpty())
					Expect(response.Warnings).To(HaveExactElements(HavePrefix("heirloom: the object inherited nothing with this write")))
				})).To(Equal(tc.management), "an owner that is not cached")
				Expect(takes(func() {
					s := newServer(t, ordinary, silent.reader(t), inherit.Policy{})
					Expect(ask(t, mux(t, s), "/mutate/machines"+query, removal.review(t)).Response.Patch).NotTo(BeEmpty())
				})).To(Equal(tc.management), "a doubt")
				Expect(takes(func() {
					handler := workload(newServer(t, abroad, silent.reader(t), inherit.Policy{}))
					Expect(ask(t, handler, proven+query, lostNode.review(t)).Response.Patch).NotTo(BeEmpty())
				})).To(Equal(tc.workload), "a doubt about a workload cluster's Node")
				Expect(takes(func() {
					d := newDoor(t, managementRoom)
					Expect(d.enter(t.Context(), managementRoom)).To(BeTrue())
					recorder := httptest.NewRecorder()
					d.handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/"+query, strings.NewReader("{}")))
					Expect(recorder.Code).To(Equal(http.StatusTooManyRequests))
				})).To(Equal(tc.management), "room")
			})
		})
	}
}

// A caller without a timeout gets the timeout of the chart.
func TestTheUsualTimeIsTheCharts(t *testing.T) {
	Expect := NewWithT(t).Expect
	content, err := os.ReadFile("../deploy/chart/heirloom/values.yaml")
	Expect(err).NotTo(HaveOccurred())
	var values struct{ Webhooks map[string]any }
	Expect(yaml.Unmarshal(content, &values)).To(Succeed())
	Expect(values.Webhooks["timeoutSeconds"]).To(And(Equal(usualTimeout.Seconds()), Equal(longestWorkloadAnswer.Seconds())))
}
