// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// hanging is an API server that does not answer.
type hanging struct{ client.Reader }

func (hanging) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// lostNode is an update of a Node that lacks what its Machine declares, which is a doubt.
var lostNode = write{kind: "Node", object: "{metadata: {name: node-1}, spec: {}}", old: "{metadata: {name: node-1}, spec: {}}"}

// usually is how long the webhooks wait for anything if the caller does not say how long it waits.
const usually = 1800 * time.Millisecond

// Whatever the webhooks wait for, a caller gets its answer in the time that it waits, and no caller makes them wait longer than an API
// server would. If nothing came in time, the cache decides; what the cache cannot decide passes untouched.
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
					s := newServer(t, missing, hanging{}, inherit.Policy{})
					response := ask(t, mux(t, s), "/mutate/machines"+query, write{kind: "Machine", object: machine(bySet)}.review(t)).Response
					Expect(response.Allowed).To(BeTrue())
					Expect(response.Patch).To(BeEmpty())
					Expect(response.Warnings).To(HaveExactElements(HavePrefix("heirloom: the object inherited nothing with this write")))
				})).To(Equal(tc.management), "an owner that is not cached")
				Expect(takes(func() {
					s := newServer(t, ordinary, hanging{}, inherit.Policy{})
					Expect(ask(t, mux(t, s), "/mutate/machines"+query, removal.review(t)).Response.Patch).NotTo(BeEmpty())
				})).To(Equal(tc.management), "a doubt")
				Expect(takes(func() {
					handler := workload(newServer(t, abroad, hanging{}, inherit.Policy{}))
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

// A caller that does not say how long it waits has the time that the chart gives.
func TestTheUsualTimeIsTheCharts(t *testing.T) {
	Expect := NewWithT(t).Expect
	content, err := os.ReadFile("../deploy/chart/heirloom/values.yaml")
	Expect(err).NotTo(HaveOccurred())
	var values struct{ Webhooks map[string]any }
	Expect(yaml.Unmarshal(content, &values)).To(Succeed())
	Expect(values.Webhooks["timeoutSeconds"]).To(And(Equal(usualTimeout.Seconds()), Equal(longestWorkloadAnswer.Seconds())))
}
