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
	"os"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/test/stage"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// callers is the number of concurrent requests, so that the server is always busy.
const callers = 8

// BenchmarkReview reports the CPU time of Heirloom's process for a review over TLS, as a multiple of the CPU time that a process of
// controller-runtime's no-op webhook takes for the same review (metric ×no-op). The processes take turns, BENCH_REQUESTS at a time.
func BenchmarkReview(b *testing.B) {
	f := newFleet(b, stage.Options{WithoutLoop: true})
	noOp, noOpMetrics := startNoOp(b)
	requests := number(b, "BENCH_REQUESTS", 500)
	stored := f.stored(b)
	touched, lost := stored.DeepCopy(), stored.DeepCopy()
	touched.Labels["bench.x-k8s.io/touched"] = "yes"
	delete(lost.Labels, "node.cluster.x-k8s.io/label-0")
	machines := webhooks.PathOf(owners.Machines)
	for _, tc := range []struct {
		name, path string
		review     []byte
		mutates    bool
	}{
		{"Machine, create", machines, review(b, "machine", f.sent(b, "machine"), nil), true},
		{"Node, create by its kubelet", webhooks.NodesPath, review(b, "node", f.sent(b, "node"), nil), true},
		{"Machine, unchanged update", machines, review(b, "machine", encode(b, touched), encode(b, stored)), false},
		{"Machine, update that loses an inherited label", machines, review(b, "machine", encode(b, lost), encode(b, stored)), true},
	} {
		b.Run(tc.name, func(b *testing.B) {
			subject, baseline := newCaller(f.WebhookURL+tc.path, tc.review), newCaller(noOp, tc.review)
			subject.expect(b, tc.mutates)
			baseline.expect(b, false)
			baseline.cpu(b, noOpMetrics, requests) // the first requests also pay for connections and other work that is done once
			subject.cpu(b, f.MetricsURL, requests)
			var ours, theirs float64
			for b.Loop() {
				theirs += baseline.cpu(b, noOpMetrics, requests)
				ours += subject.cpu(b, f.MetricsURL, requests)
			}
			b.ReportMetric(ours/theirs, "×no-op")
			b.ReportMetric(ours/float64(b.N*requests)*1e6, "µs-CPU")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// stored creates a Machine and returns the stored object, with all inherited entries and its managed fields.
func (f *fleet) stored(b *testing.B) *clusterv1.Machine {
	b.Helper()
	machine := stage.Machine(f.set, "stored")
	if err := f.Client.Create(b.Context(), machine); err != nil {
		b.Fatal(err)
	}
	if err := f.Client.Get(b.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
		b.Fatal(err)
	}
	machine.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine")) // an API server sends the kind
	return machine
}

// sent returns an object of testdata, as JSON.
func (f *fleet) sent(b *testing.B, name string) []byte {
	b.Helper()
	text, err := os.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		b.Fatal(err)
	}
	object, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(string(text), "OWNER", string(f.set.UID))))
	if err != nil {
		b.Fatal(err)
	}
	return object
}

// review returns the review of a create, or with an old object, of an update.
func review(b *testing.B, kind string, object, old []byte) []byte {
	b.Helper()
	text, err := os.ReadFile("testdata/" + kind + "-review.yaml")
	if err != nil {
		b.Fatal(err)
	}
	request := &admissionv1.AdmissionRequest{}
	if err := yaml.UnmarshalStrict(text, request); err != nil {
		b.Fatal(err)
	}
	request.Operation, request.Object.Raw, request.DryRun = admissionv1.Create, object, new(false)
	if old != nil {
		request.Operation, request.OldObject = admissionv1.Update, runtime.RawExtension{Raw: old}
	}
	return encode(b, admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
}

func encode(b *testing.B, object any) []byte {
	b.Helper()
	encoded, err := json.Marshal(object)
	if err != nil {
		b.Fatal(err)
	}
	return encoded
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

// cpu sends this number of requests, several at a time, and returns the CPU time that the process with these metrics took, in seconds.
func (c *caller) cpu(b *testing.B, metricsURL string, requests int) float64 {
	b.Helper()
	before := measured(b, metricsURL)
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
	return measured(b, metricsURL)["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]
}
