// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// answerWithin is how long callers wait for an answer, as API servers do on a stage with patient webhooks: the stream is about what is
// answered. Within the chart's two seconds, a busy machine does not always give both sides the CPU.
const answerWithin = 10 * time.Second

// tempo is how long everybody in a stream waits between two requests.
const tempo = 100 * time.Millisecond

// stream is what goes on while certificates are replaced: MachineSets and Machines are created, each of which must inherit
// in that very write; and, because an API server keeps its connections, callers who verify what is served on a new
// connection for each request by the CA bundle that is published.
type stream struct {
	s    *scene
	name string
	f    family
	stop context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	failures []string
	writes   int
	calls    map[string]int
	// leaves are the certificates that were served, by the server's URL.
	leaves map[string]sets.Set[string]
}

// server is where a replica answers.
type server struct{ webhookURL, healthURL string }

// startStream starts a stream of writes, of objects with names that begin with this, and of calls to these servers.
func (s *scene) startStream(name string, f family, servers ...server) *stream {
	ctx, stop := context.WithCancel(s.ctx)
	r := &stream{s: s, name: name, f: f, stop: stop, calls: map[string]int{}, leaves: map[string]sets.Set[string]{}}
	r.every(ctx, r.write)
	for _, server := range servers {
		r.leaves[server.webhookURL] = sets.New[string]()
		var bundle []byte
		r.every(ctx, func(ctx context.Context, number int) error {
			// The bundle of the call before: an API server is told late of a change.
			stale := bundle
			var err error
			if bundle, err = s.publishedBundle(ctx); err != nil || stale == nil {
				return err
			}
			return r.call(ctx, server.webhookURL, stale)
		})
		r.every(ctx, func(ctx context.Context, _ int) error { return askReady(ctx, server.healthURL) })
	}
	return r
}

func (r *stream) every(ctx context.Context, do func(context.Context, int) error) {
	r.done.Go(func() {
		number := 0
		wait.UntilWithContext(ctx, func(context.Context) {
			number++
			// A request that has begun is ended, so that its failure is never the test's own doing.
			if err := do(r.s.ctx, number); err != nil {
				r.fail(err)
			}
		}, tempo)
	})
}

func (r *stream) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf("%s: %v", time.Now().Format(time.TimeOnly), err))
}

// write creates a MachineSet and a Machine. The webhooks fail open, so that it is the answer that counts.
func (r *stream) write(ctx context.Context, number int) error {
	ms := stage.MachineSet(r.f.md, fmt.Sprintf("%s-%d", r.name, number))
	if err := r.s.Client.Create(ctx, ms); err != nil {
		return fmt.Errorf("MachineSet %d: %w", number, err)
	}
	if ms.Spec.Template.Labels["team"] != "ml" {
		return fmt.Errorf("MachineSet %d was stored without what it inherits", number)
	}
	m := stage.Machine(r.f.ms, fmt.Sprintf("%s-%d", r.name, number))
	if err := r.s.Client.Create(ctx, m); err != nil {
		return fmt.Errorf("Machine %d: %w", number, err)
	}
	if m.Labels["team"] != "ml" {
		return fmt.Errorf("Machine %d was stored without what it inherits", number)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes += 2
	return nil
}

// call asks a server about a Machine, on a connection of its own, as an API server with that CA bundle does.
func (r *stream) call(ctx context.Context, url string, bundle []byte) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	review, err := reviewOf(stage.Machine(r.f.ms, "asked"))
	if err != nil {
		return err
	}
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/mutate/machines", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{Transport: transport, Timeout: answerWithin}).Do(request)
	if err != nil {
		return fmt.Errorf("calling: %w", err)
	}
	defer response.Body.Close()
	var answer admissionv1.AdmissionReview
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", url, err)
	}
	if answer.Response == nil || !strings.Contains(string(answer.Response.Patch), `"team":"ml"`) {
		return fmt.Errorf("%s does not say what a Machine inherits", url)
	}
	leaf := response.TLS.PeerCertificates[0]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[url]++
	r.leaves[url].Insert(leaf.SerialNumber.String())
	return nil
}

func askReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking whether it is ready: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s is not ready: %s", url, response.Status)
	}
	return nil
}

// seen returns how many certificates were served by each of the servers at least.
func (r *stream) seen() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	least := -1
	for _, set := range r.leaves {
		if least < 0 || set.Len() < least {
			least = set.Len()
		}
	}
	return least
}

// count returns how many writes there were so far.
func (r *stream) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes
}

// failed returns what has failed so far.
func (r *stream) failed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.failures...)
}

// end stops the stream and expects that nothing in it has failed.
func (r *stream) end() {
	r.s.t.Helper()
	r.stop()
	r.done.Wait()
	r.s.t.Logf("%d writes and calls %v with %d certificates: %d failed", r.writes, r.calls, r.seen(), len(r.failures))
	r.s.Expect(r.failures).To(BeEmpty())
	r.s.Expect(r.writes).To(BeNumerically(">", 20))
	for url, calls := range r.calls {
		r.s.Expect(calls).To(BeNumerically(">", 20), url)
	}
}

// publishedBundle returns the one CA bundle of all webhooks.
func (s *scene) publishedBundle(ctx context.Context) ([]byte, error) {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := s.Client.Get(ctx, types.NamespacedName{Name: "heirloom"}, mutating); err != nil {
		return nil, err
	}
	for _, webhook := range mutating.Webhooks {
		if !bytes.Equal(webhook.ClientConfig.CABundle, mutating.Webhooks[0].ClientConfig.CABundle) || len(webhook.ClientConfig.CABundle) == 0 {
			return nil, fmt.Errorf("the webhook %s has another CA bundle, or none", webhook.Name)
		}
	}
	return mutating.Webhooks[0].ClientConfig.CABundle, nil
}

// eventuallyPublishesOneCA waits until all webhooks have the same bundle of one CA.
func (s *scene) eventuallyPublishesOneCA() {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		bundle, err := s.publishedBundle(s.ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(bytes.Count(bundle, []byte("BEGIN CERTIFICATE"))).To(Equal(1))
		validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		g.Expect(s.Client.Get(s.ctx, types.NamespacedName{Name: "heirloom"}, validating)).To(Succeed())
		for _, webhook := range validating.Webhooks {
			g.Expect(webhook.ClientConfig.CABundle).To(Equal(bundle), webhook.Name)
		}
	}).WithTimeout(2 * patience).WithPolling(tempo).Should(Succeed())
}
