// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// lost is the label that each update takes away.
const lost = "node.cluster.x-k8s.io/label-3"

// BenchmarkRecheck reports the processor time of Heirloom's server for an update that takes away an inherited label, which is
// decided a second time by owners from the API server, as a multiple of the same update to the no-op webhook (metric ×no-op). It
// also reports how many reads an update costs, and how long it takes. With "cache", nothing is decided again; with "alone", each update
// has its own reads.
func BenchmarkRecheck(b *testing.B) {
	const fleetSize, requests = 64, 128
	live := &counted{Reader: liveReader(b, fleetSize)}
	f := newFleet(fleetSize)
	for _, kind := range []string{"Machine", "Node"} {
		bodies := f.losing(b, kind)
		for _, reader := range []struct {
			name string
			live client.Reader
		}{{"cache", nil}, {"alone", live}, {"shared", &owners.Live{Reader: live}}} {
			handler := f.server(b, reader.live)
			for _, atOnce := range []int{1, 10, 50} {
				b.Run(fmt.Sprintf("%s/%d at once/%s", kind, atOnce, reader.name), func(b *testing.B) {
					compare(b, handler, kind, bodies, requests, atOnce, live)
				})
			}
		}
	}
}

// compare sends updates by turns to the no-op webhook and to Heirloom's.
func compare(b *testing.B, handler http.Handler, kind string, bodies [][]byte, requests, atOnce int, live *counted) {
	b.Helper()
	var subject, baseline, took time.Duration
	before := live.reads.Load()
	for b.Loop() {
		baseline += processorTime(b, func() { send(b, handler, noOpPath, bodies, requests, atOnce) })
		start := time.Now()
		subject += processorTime(b, func() { send(b, handler, pathOf(kind), bodies, requests, atOnce) })
		took += time.Since(start)
	}
	all := float64(b.N * requests)
	b.ReportMetric(float64(subject)/float64(baseline), "×no-op")
	b.ReportMetric(float64(live.reads.Load()-before)/all, "reads/update")
	b.ReportMetric(took.Seconds()*1000*float64(atOnce)/all, "ms/update")
	b.ReportMetric(0, "ns/op")
}

// send sends so many requests, as many at once as said. All must be answered with a patch, unless nothing answers with one.
func send(b *testing.B, handler http.Handler, path string, bodies [][]byte, requests, atOnce int) {
	b.Helper()
	var sending errgroup.Group
	sending.SetLimit(atOnce)
	for i := range requests {
		sending.Go(func() error {
			answer := post(handler, path, bodies[i%len(bodies)])
			if path != noOpPath && !bytes.Contains(answer, []byte(`"patch"`)) {
				return fmt.Errorf("nothing was put back: %s", answer)
			}
			return nil
		})
	}
	if err := sending.Wait(); err != nil {
		b.Fatal(err)
	}
}

func post(handler http.Handler, path string, body []byte) []byte {
	request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Body.Bytes()
}

// processorTime is what this process has used meanwhile.
func processorTime(b *testing.B, do func()) time.Duration {
	b.Helper()
	used := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before := used()
	do()
	return used() - before
}

// counted counts reads.
type counted struct {
	client.Reader
	reads atomic.Int64
}

// Get implements client.Reader.
func (c *counted) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	c.reads.Add(1)
	return c.Reader.Get(ctx, key, into, options...)
}

func pathOf(kind string) string {
	if kind == "Node" {
		return webhooks.NodesPath
	}
	return webhooks.PathOf(owners.Machines)
}

// server is Heirloom's webhook server with a no-op webhook beside its own.
func (f *fleet) server(b *testing.B, live client.Reader) http.Handler {
	b.Helper()
	counters, err := metrics.New(prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	server := webhook.NewServer(webhook.Options{})
	webhooks.Register(server, webhooks.Dependencies{
		Chain:             &owners.Chain{Cache: f.cache(), Live: live, AskMissing: true, Count: counters.OwnerLookup},
		ManagementCluster: client.ObjectKeyFromObject(f.cluster), Metrics: counters,
		Policy: func() inherit.Policy { return inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled} },
	})
	server.Register(noOpPath, &admission.Webhook{
		Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") }),
	})
	return server.WebhookMux()
}

// losing returns an update of each Machine, or of each Node, that takes away the lost label.
func (f *fleet) losing(b *testing.B, kind string) [][]byte {
	b.Helper()
	handler := f.server(b, nil)
	var bodies [][]byte
	for _, m := range f.machines {
		var request admissionv1.AdmissionRequest
		if kind == "Node" {
			node := inherited(b, handler, kind, nodeOf(m))
			request = update(kind, without(node), node)
		} else {
			machine := inherited(b, handler, kind, m)
			request = update(kind, without(machine), machine)
		}
		bodies = append(bodies, review(request))
	}
	return bodies
}

// inherited returns the object as it is stored once it has been created.
func inherited[P client.Object](b *testing.B, handler http.Handler, kind string, object P) P {
	b.Helper()
	var answered admissionv1.AdmissionReview
	if err := json.Unmarshal(post(handler, pathOf(kind), review(create(kind, object))), &answered); err != nil {
		b.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(answered.Response.Patch)
	if err != nil {
		b.Fatal(err)
	}
	stored, err := patch.Apply(encode(object))
	if err != nil {
		b.Fatal(err)
	}
	into := object.DeepCopyObject().(P) //nolint:forcetypeassert // it is a copy
	if err := json.Unmarshal(stored, into); err != nil {
		b.Fatal(err)
	}
	if into.GetLabels()[lost] == "" {
		b.Fatalf("%s was not inherited: %v", lost, into.GetLabels())
	}
	return into
}

func without[P client.Object](object P) P {
	changed := object.DeepCopyObject().(P) //nolint:forcetypeassert // it is a copy
	labels := changed.GetLabels()
	delete(labels, lost)
	changed.SetLabels(labels)
	return changed
}

func review(request admissionv1.AdmissionRequest) []byte {
	return encode(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &request,
	})
}
