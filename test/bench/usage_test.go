// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/test/bench/samples"
	"github.com/heirloom-dev/heirloom/test/stage"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// callers is the number of concurrent requests, so that the server is always busy.
const callers = 8

// BenchmarkWebhookCPU reports the CPU time of Heirloom's process for a request over TLS, as a multiple of the CPU time that a process of
// controller-runtime's no-op webhook takes for the same request (metric ×no-op). The processes take turns.
func BenchmarkWebhookCPU(b *testing.B) {
	f := newResidents(b, stage.Options{WithoutLoop: true})
	n := startNoOp(b)
	requests := sizes(b, "BENCH_REQUESTS", 20)[0]
	bare := stage.Machine(f.set, "bare")
	stored := f.stored(b, "stored")
	touched, lost := stored.DeepCopy(), stored.DeepCopy()
	touched.Labels["bench.x-k8s.io/touched"] = "yes"
	delete(lost.Labels, "node.cluster.x-k8s.io/label-0")
	node := sentByKubelet(kubeletsNode(stored.Name))
	for _, tc := range []struct {
		name, path string
		request    admissionv1.AdmissionRequest
		mutates    bool
	}{
		{"Machine, create", webhooks.PathOf(owners.Machines), create("Machine", sentByClusterAPI(bare)), true},
		{"Node, create by its kubelet", webhooks.NodesPath, registering(node), true},
		{"Machine, unchanged update", webhooks.PathOf(owners.Machines), update("Machine", touched, stored), false},
		{"Machine, update that loses an inherited label", webhooks.PathOf(owners.Machines), update("Machine", lost, stored), true},
	} {
		body := encode(admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &tc.request,
		})
		b.Run(tc.name, func(b *testing.B) {
			subject, baseline := newCaller(f.WebhookURL+tc.path, body), newCaller(n.url+noOpPath, body)
			subject.expect(b, tc.mutates)
			baseline.expect(b, false)
			baseline.saturate(b, requests) // the first requests also pay for connections and other work that is done once
			subject.saturate(b, requests)
			var ours, theirs float64
			for b.Loop() {
				start := n.usage(b).CPU
				baseline.saturate(b, requests)
				theirs += (n.usage(b).CPU - start).Seconds()
				before := f.cpu(b)
				subject.saturate(b, requests)
				ours += f.cpu(b) - before
			}
			b.ReportMetric(ours/theirs, "×no-op")
			b.ReportMetric(ours/float64(b.N*requests)*1e6, "µs-CPU")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// stored creates a Machine and returns the stored object, with all inherited entries and its managed fields.
func (f *residents) stored(b *testing.B, name string) *clusterv1.Machine {
	b.Helper()
	machine := stage.Machine(f.set, name)
	if err := f.Client.Create(b.Context(), machine); err != nil {
		b.Fatal(err)
	}
	if err := f.Client.Get(b.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
		b.Fatal(err)
	}
	machine.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	return machine
}

// cpu returns the CPU time of the program in seconds.
func (f *residents) cpu(b *testing.B) float64 {
	b.Helper()
	now, err := samples.Of(b.Context(), f.MetricsURL)
	if err != nil {
		b.Fatal(err)
	}
	return now["process_cpu_seconds_total"]
}

// caller calls a webhook as an API server does.
type caller struct {
	client *http.Client
	url    string
	body   []byte
}

func newCaller(url string, body []byte) *caller {
	// API servers speak HTTP/1.1 to every webhook on another machine.
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	transport := utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: callers})
	return &caller{client: &http.Client{Transport: transport}, url: url, body: body}
}

func (c *caller) ask(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	return answer, err
}

// expect fails the benchmark if the webhook does not answer as expected: the benchmark would measure something else.
func (c *caller) expect(b *testing.B, mutates bool) {
	b.Helper()
	answer, err := c.ask(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &review); err != nil {
		b.Fatal(err)
	}
	if !review.Response.Allowed || (len(review.Response.Patch) > 0) != mutates {
		b.Fatalf("unexpected answer: %s", answer)
	}
}

// saturate sends this number of requests, several at a time.
func (c *caller) saturate(b *testing.B, requests int) {
	b.Helper()
	asking, ctx := errgroup.WithContext(b.Context())
	asking.SetLimit(callers)
	for range requests {
		asking.Go(func() error {
			_, err := c.ask(ctx)
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		b.Fatal(err)
	}
}

// took returns the duration of one request.
func (c *caller) took(b *testing.B) time.Duration {
	b.Helper()
	return timed(b, func(ctx context.Context) error {
		_, err := c.ask(ctx)
		return err
	})
}
