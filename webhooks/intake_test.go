// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// door is an intake whose reviews stay until they are let go. Callers say who they are.
type door struct {
	*intake
	t        *testing.T
	entered  chan string
	release  chan struct{}
	mu       sync.Mutex
	rejected []metrics.Rejection
}

func newDoor(t *testing.T, size room) *door {
	d := &door{t: t, entered: make(chan string, 2*mostRequests), release: make(chan struct{})}
	d.intake = newIntake(size, func(why metrics.Rejection) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.rejected = append(d.rejected, why)
	})
	return d
}

func (d *door) counted() []metrics.Rejection {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]metrics.Rejection{}, d.rejected...)
}

// send sends a review of that size and returns the status, some time.
func (d *door) send(caller string, size int) <-chan int {
	handler := d.wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) != size {
			d.t.Errorf("%d bytes of %d arrive: %v", len(body), size, err)
		}
		d.entered <- caller
		<-d.release
	}), func(*http.Request) string { return caller })
	status := make(chan int, 1)
	go func() {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", size))))
		status <- recorder.Code
	}()
	return status
}

// Dozens of reviews of seven megabytes at once are dealt with one by one, and turned away if that takes too long; meanwhile
// an honest one of ordinary size goes on.
func TestHonestReviewsGoOnBesideLargeOnes(t *testing.T) {
	Expect, Eventually := NewWithT(t).Expect, NewWithT(t).Eventually
	d := newDoor(t, managementRoom())
	large := make([]<-chan int, 50)
	for i := range large {
		large[i] = d.send("greedy", largestReview)
	}
	Expect(<-d.entered).To(Equal("greedy"))

	honest := d.send("honest", 20<<10)
	Expect(<-d.entered).To(Equal("honest"))
	for range len(large) - 1 {
		Eventually(d.counted).WithTimeout(time.Minute).Should(HaveLen(len(large) - 1))
	}
	Expect(d.counted()).To(HaveEach(metrics.TooMany))
	close(d.release)

	Expect(<-honest).To(Equal(http.StatusOK))
	statuses := map[int]int{}
	for _, status := range large {
		statuses[<-status]++
	}
	Expect(statuses).To(Equal(map[int]int{http.StatusOK: 1, http.StatusTooManyRequests: len(large) - 1}))
	Expect(d.callers).To(BeEmpty())
	Expect(d.requests).To(BeZero())
	Expect(d.large.TryAcquire(d.size.large) && d.ordinary.TryAcquire(d.size.ordinary)).To(BeTrue(), "all room is given back")
}

// On a busy machine, a second may go by before a review asks for room. It is turned away only if there is none.
func TestAReviewThatFindsRoomIsNotTooLate(t *testing.T) {
	Expect := NewWithT(t).Expect
	d := newDoor(t, workloadRoom())
	d.patience = 0
	var statuses []<-chan int
	for range d.size.caller / ordinaryReview {
		statuses = append(statuses, d.send("caller", ordinaryReview))
		Expect(<-d.entered).To(Equal("caller"))
	}
	Expect(<-d.send("caller", ordinaryReview)).To(Equal(http.StatusTooManyRequests))
	close(d.release)
	for _, status := range statuses {
		Expect(<-status).To(Equal(http.StatusOK))
	}
}

// However many ordinary reviews one caller sends, there is room for another's.
func TestOneCallerDoesNotTakeTheRoomOfOthers(t *testing.T) {
	for name, size := range map[string]int{"few, as large as ordinary ones are": ordinaryReview, "many small ones": 1} {
		t.Run(name, func(t *testing.T) {
			Expect, Eventually := NewWithT(t).Expect, NewWithT(t).Eventually
			d := newDoor(t, workloadRoom())
			fit := min(int(d.size.caller)/size, mostRequests/2)
			var greedy []<-chan int
			for range fit + 20 {
				greedy = append(greedy, d.send("greedy", size))
			}
			for range fit {
				Expect(<-d.entered).To(Equal("greedy"))
			}
			honest := d.send("honest", 20<<10)
			Expect(<-d.entered).To(Equal("honest"))
			Eventually(d.counted).WithTimeout(time.Minute).Should(HaveLen(20))
			close(d.release)
			Expect(<-honest).To(Equal(http.StatusOK))
			for _, status := range greedy {
				<-status
			}
			Expect(d.callers).To(BeEmpty())
		})
	}
}

// What waits goes on as soon as there is room.
func TestReviewsWaitForRoom(t *testing.T) {
	Expect := NewWithT(t).Expect
	d := newDoor(t, managementRoom())
	d.patience = time.Hour
	first := d.send("a", largestReview)
	<-d.entered
	second := d.send("b", 1<<20)
	close(d.release)
	Expect(<-first).To(Equal(http.StatusOK))
	Expect(<-second).To(Equal(http.StatusOK))
	Expect(d.counted()).To(BeEmpty())
}

// body is one that never ends to be sent, or must not be read.
type body struct{ read func() error }

func (b body) Read([]byte) (int, error) { return 0, b.read() }

func TestReviewsThatAreTooLargeAreNotRead(t *testing.T) {
	Expect := NewWithT(t).Expect
	s := newServer(t, ordinary, nil, inherit.Policy{})
	request := httptest.NewRequest(http.MethodPost, MachinesPath, body{func() error {
		t.Error("it is read")
		return io.EOF
	}})
	request.ContentLength = largestReview + 1
	recorder := httptest.NewRecorder()
	mux(t, s).ServeHTTP(recorder, request)
	Expect(recorder.Code).To(Equal(http.StatusRequestEntityTooLarge))
	Expect(s.countedIn(t, "heirloom_admission_requests_rejected_total")).To(ConsistOf("too_large management"))
	Expect(recorder.Header()).NotTo(HaveKey("Retry-After"), "an API server would wait, and its client with it")

	// Where nobody says how long it is, no more than that is read either.
	request = httptest.NewRequest(http.MethodPost, MachinesPath, io.LimitReader(endless{}, 100<<20))
	request.ContentLength = -1
	request.Header.Set("Content-Type", "application/json")
	recorder = httptest.NewRecorder()
	mux(t, s).ServeHTTP(recorder, request)
	Expect(recorder.Body.String()).To(ContainSubstring("too large"))
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// A body that does not arrive gives its room back.
func TestReviewsThatComeTooSlowlyAreTurnedAway(t *testing.T) {
	Expect := NewWithT(t).Expect
	d := newDoor(t, managementRoom())
	server := httptest.NewServer(d.wrap(http.NotFoundHandler(), byAddress))
	t.Cleanup(server.Close)
	slow, _ := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, slow)
	Expect(err).NotTo(HaveOccurred())
	request.ContentLength = 100
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	Expect(response.StatusCode).To(Equal(http.StatusRequestTimeout))
	Expect(d.counted()).To(ConsistOf(metrics.TooSlow))
	Expect(d.ordinary.TryAcquire(d.size.ordinary)).To(BeTrue())
}

// Of a request that proves no Cluster, nothing but its path is read.
func TestForgedPathsAreNotRead(t *testing.T) {
	Expect := NewWithT(t).Expect
	s := newServer(t, abroad, nil, inherit.Policy{})
	handler := newWorkload(s.Dependencies, func() []byte { return newKey(1) })
	for path, read := range map[string]bool{webhook.Path(newKey(9), identity(red)): false, webhook.Path(newKey(1), identity(red)): true} {
		was := false
		recorder := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodPost, path, body{func() error {
			was = true
			return errors.New("broken off")
		}})
		request.ContentLength = 100
		handler.ServeHTTP(recorder, request)
		Expect(was).To(Equal(read), path)
	}
	Expect(s.countedIn(t, "heirloom_admission_requests_rejected_total")).To(ConsistOf("too_slow workload"))
}

func TestCallers(t *testing.T) {
	Expect := NewWithT(t).Expect
	request := httptest.NewRequest(http.MethodPost, "/", nil)
	for address, want := range map[string]string{"192.0.2.1:1234": "192.0.2.1", "[2001:db8::1]:1": "2001:db8::1", "@": ""} {
		request.RemoteAddr = address
		Expect(byAddress(request)).To(Equal(want))
	}
	Expect(byCluster(request)).To(Equal("/"))
	of := request.WithContext(context.WithValue(request.Context(), callerKey{}, types.NamespacedName{Namespace: "ns", Name: "red"}))
	Expect(byCluster(of)).To(Equal("ns/red"))
	for _, size := range []room{managementRoom(), workloadRoom()} {
		Expect(size.caller*2).To(BeNumerically("<=", size.ordinary), "no caller has all of it")
	}
}
