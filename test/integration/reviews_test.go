// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/test/stage"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// Fifty reviews at a time, each of six megabytes, while an administrator creates Machines.
const (
	hugeReviews  = 50
	hugeReview   = 6 << 20
	createdAmong = 20
)

// A caller of the webhooks can send huge reviews, dozens at a time and without end. They are answered, or turned away with a status
// that is a failure to an API server, and counted. Every Machine that is created meanwhile inherits in the write that creates it.
func TestMachinesInheritBesideHugeReviews(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutLoop: true, FailClosed: true})
	f := s.settle("beside", declared())
	huge := stage.Machine(f.ms, "huge")
	huge.Annotations = map[string]string{}
	for n := range hugeReview / 128 {
		huge.Annotations[fmt.Sprintf("example.com/%08d", n)] = strings.Repeat("x", 128-len(`"example.com/00000000":"",`))
	}
	body := s.reviewOf(huge)
	s.Expect(len(body)).To(And(BeNumerically(">=", hugeReview), BeNumerically("<", 7<<20)), "it is not refused for its size alone")

	flood := startFlood(t, s.WebhookURL+webhooks.PathOf(owners.Machines), body)
	s.Eventually(flood.turnedAway).WithTimeout(2*patience).Should(BeNumerically(">", 0), "there is more than there is room for")
	for n := range createdAmong {
		m := stage.Machine(f.ms, fmt.Sprintf("beside-%d", n))
		s.create(m)
		s.Expect(m.Labels).To(HaveKeyWithValue("team", "ml"), m.Name)
		s.Expect(m.Spec.Taints).To(ContainElements(declared().Taints), m.Name)
	}
	flood.stop()
	flood.count(post(flood.client, flood.url, body))

	s.Expect(flood.seen()).To(HaveKey("200"), "it is answered as soon as there is room")
	for answer := range flood.seen() {
		// Under load, a sender may still be sending half a second after its answer, when the server closes the connection.
		s.Expect(answer).To(Or(Equal("200"), MatchRegexp("^[45]..$"), MatchRegexp("write: (connection reset by peer|broken pipe)$")))
	}
	s.Expect(s.sum(`heirloom_admission_requests_rejected_total{`)).To(BeEquivalentTo(flood.turnedAway()))
	s.Expect(s.Heirloom.Done()).NotTo(BeClosed())
	s.expectReady(s.HealthURL)
}

// flood sends one and the same review again and again, many at a time.
type flood struct {
	client *http.Client
	url    string
	stop   func()

	mu sync.Mutex
	// answers is how often each status was the answer; what was none is there by its error.
	answers map[string]int
}

// startFlood begins to send. It ends with the test at the latest.
func startFlood(t *testing.T, url string, body []byte) *flood {
	t.Helper()
	// HTTP/1.1, as API servers speak it to all webhooks but those on their own machine.
	insecure := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	f := &flood{client: &http.Client{Transport: &http.Transport{TLSClientConfig: insecure}}, url: url, answers: map[string]int{}}
	over := make(chan struct{})
	var senders sync.WaitGroup
	f.stop = sync.OnceFunc(func() {
		close(over)
		senders.Wait()
	})
	t.Cleanup(f.stop)
	for range hugeReviews {
		senders.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					f.count(post(f.client, url, body))
				}
			}
		})
	}
	return f
}

// post returns the status of the answer, or why there was none.
func post(c *http.Client, url string, body []byte) string {
	response, err := c.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err.Error()
	}
	return fmt.Sprint(response.StatusCode)
}

func (f *flood) count(answer string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[answer]++
}

func (f *flood) seen() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.answers)
}

func (f *flood) turnedAway() int {
	all := 0
	for answer, times := range f.seen() {
		if answer != "200" {
			all += times
		}
	}
	return all
}
