// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// door is a webhook that holds its reviews until it is released.
type door struct {
	reviewer
	handler http.Handler
	release chan struct{}

	mu       sync.Mutex
	inside   map[string]int
	rejected []metrics.Rejection
}

func newDoor(t *testing.T, room int64) *door {
	d := &door{release: make(chan struct{}), inside: map[string]int{}}
	d.reviewer = newReviewer(room, LongestAnswer, func(why metrics.Rejection) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.rejected = append(d.rejected, why)
	})
	d.handler = d.of(failOpen{decider: d, metrics: newServer(t, ordinary, nil, inherit.Policy{}).Metrics})
	return d
}

// turnedAway returns the number of rejected reviews.
func (d *door) turnedAway() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.rejected)
}

// decide implements decider.
func (d *door) decide(_ context.Context, req admission.Request) (answer, error) {
	d.mu.Lock()
	d.inside[req.Name]++
	d.mu.Unlock()
	<-d.release
	return unmatched(), nil
}

// send sends a review of this size by a sender, and returns a channel for the status.
func (d *door) send(sender string, size int) <-chan int {
	body := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"name":%q}}`, sender)
	body += strings.Repeat(" ", size-len(body))
	status := make(chan int, 1)
	go func() {
		recorder := httptest.NewRecorder()
		d.handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		if recorder.Header().Get("Retry-After") != "" {
			status <- 0 // an API server and its client would wait
			return
		}
		status <- recorder.Code
	}()
	return status
}

// expectAllRoom expects that all room is free.
func (d *door) expectAllRoom(t *testing.T) {
	t.Helper()
	NewWithT(t).Expect(d.room.TryAcquire(d.size)).To(BeTrue())
}

// Of dozens of large reviews at once, some are answered and the others are rejected immediately. Meanwhile an ordinary review is answered.
func TestOrdinaryReviewsGoOnBesideLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		d := newDoor(t, managementRoom)
		var large []<-chan int
		for range 50 {
			large = append(large, d.send("greedy", largestReview))
		}
		honest := d.send("honest", 20<<10)
		synctest.Wait()
		Expect(d.inside).To(Equal(map[string]int{"greedy": 1, "honest": 1}))
		Expect(d.rejected).To(And(HaveLen(len(large)-1), HaveEach(metrics.TooMany)))
		close(d.release)
		Expect(<-honest).To(Equal(http.StatusOK))
		statuses := map[int]int{}
		for _, status := range large {
			statuses[<-status]++
		}
		Expect(statuses).To(Equal(map[int]int{http.StatusOK: 1, http.StatusTooManyRequests: len(large) - 1}))
		d.expectAllRoom(t)
	})
}

// An ordinary review without room waits for a while, and no large review goes before it.
func TestOrdinaryReviewsWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		d := newDoor(t, workloadRoom)
		for range workloadRoom / ordinaryReview {
			d.send("first", ordinaryReview)
		}
		synctest.Wait()
		waiting := d.send("waiting", 1<<10)
		<-time.After(usually - 1)
		Expect(<-d.send("greedy", ordinaryReview+1)).To(Equal(http.StatusTooManyRequests))
		late, start := d.send("late", ordinaryReview), time.Now()
		d.release <- struct{}{}
		synctest.Wait()
		Expect(d.inside).To(HaveKeyWithValue("waiting", 1))
		Expect(<-late).To(Equal(http.StatusTooManyRequests), "there is not enough room for it")
		Expect(time.Since(start)).To(Equal(usually))
		close(d.release)
		Expect(<-waiting).To(Equal(http.StatusOK))
		synctest.Wait()
		d.expectAllRoom(t)
	})
}

// On a busy machine the context of a request may be done before the request asks for room. It is rejected only if there is no room.
func TestReviewsWithRoomAreNotTooLate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	NewWithT(t).Expect(newDoor(t, workloadRoom).enter(ctx, 1)).To(BeTrue())
}

// The number of waiting reviews is limited, however many come at once.
func TestFewReviewsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, workloadRoom)
		NewWithT(t).Expect(d.enter(t.Context(), workloadRoom)).To(BeTrue())
		for range mostWaiting + 7 {
			d.send("any", 1<<10)
		}
		synctest.Wait()
		NewWithT(t).Expect(d.turnedAway()).To(Equal(7))
		<-time.After(usually + 1)
		synctest.Wait()
		NewWithT(t).Expect(d.turnedAway()).To(Equal(mostWaiting + 7))
		NewWithT(t).Expect(d.waiting.TryAcquire(mostWaiting)).To(BeTrue())
	})
}

// A review that is larger than the room takes all the room.
func TestTheLargestReviewFindsRoom(t *testing.T) {
	d := newDoor(t, workloadRoom)
	close(d.release)
	NewWithT(t).Expect(<-d.send("alone", largestReview)).To(Equal(http.StatusOK))
	d.expectAllRoom(t)
}

// body is a request body with this Read function.
type body struct{ read func() error }

func (b body) Read([]byte) (int, error) { return 0, b.read() }

func TestTooLargeReviewsAreNotRead(t *testing.T) {
	Expect := NewWithT(t).Expect
	s := newServer(t, ordinary, nil, inherit.Policy{})
	request := httptest.NewRequest(http.MethodPost, PathOf(owners.Machines), body{func() error {
		t.Error("it is read")
		return io.EOF
	}})
	request.ContentLength = largestReview + 1
	recorder := httptest.NewRecorder()
	mux(t, s).ServeHTTP(recorder, request)
	Expect(recorder.Code).To(Equal(http.StatusRequestEntityTooLarge))
	Expect(s.countedIn(t, "heirloom_admission_requests_rejected_total")).To(ConsistOf("too_large management"))
	Expect(recorder.Header()).NotTo(HaveKey("Retry-After"), "an API server and its client would wait")

	// If the request has no content length, the handler reads no more than the limit.
	sent := &io.LimitedReader{R: endless{}, N: 100 << 20}
	request = httptest.NewRequest(http.MethodPost, PathOf(owners.Machines), sent)
	request.ContentLength = -1
	recorder = httptest.NewRecorder()
	mux(t, s).ServeHTTP(recorder, request)
	Expect(recorder.Code).To(Equal(http.StatusRequestEntityTooLarge))
	Expect(sent.N).To(BeNumerically(">", 80<<20))
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// A body that does not arrive frees its room.
func TestSlowBodiesAreTurnedAway(t *testing.T) {
	Expect := NewWithT(t).Expect
	d := newDoor(t, managementRoom)
	server := httptest.NewServer(d.handler)
	t.Cleanup(server.Close)
	slow, _ := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"?timeout=1s", slow)
	Expect(err).NotTo(HaveOccurred())
	request.ContentLength = 100
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	Expect(response.StatusCode).To(Equal(http.StatusRequestTimeout))
	Expect(d.rejected).To(ConsistOf(metrics.TooSlow))
	NewWithT(t).Eventually(func() bool { return d.room.TryAcquire(d.size) }).WithTimeout(time.Minute).Should(BeTrue())
}

// Of a request whose path is not valid for a Cluster, the handler reads only the path.
func TestForgedPathsAreNotRead(t *testing.T) {
	Expect := NewWithT(t).Expect
	s := newServer(t, abroad, nil, inherit.Policy{})
	handler := workload(s)
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

// counting returns the fleet, and the number of its reads by what is read.
func (f fleet) counting() (fleet, map[string]int) {
	reads := map[string]int{}
	f.asked = func(_ context.Context, what string) error {
		reads[what]++
		return nil
	}
	return f, reads
}

// Each workload cluster has its own limit for live reads from the management cluster's API server.
func TestReadsForWorkloadClustersAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		live, reads := abroad.counting()
		s := newServer(t, abroad, live.reader(t), inherit.Policy{})
		handler, lost := workload(s), lostNode.review(t)
		asks := func(cluster types.NamespacedName, times int) {
			for range times {
				ask(t, handler, webhook.Path(newKey(1), identity(cluster)), lost)
			}
		}
		asks(red, 1)
		each := readsAtOnce
		Expect(reads["ns/m-red"]).To(Equal(1))
		asks(red, 2*each)
		Expect(reads["ns/m-red"]).To(BeNumerically("<=", each))
		exhausted := reads["ns/m-red"]
		asks(red, 10)
		Expect(reads["ns/m-red"]).To(Equal(exhausted), "the cache decides")
		asks(blue, 1)
		Expect(reads["other/m-blue"]).To(Equal(1), "other clusters keep their limit")
		<-time.After(time.Second)
		asks(red, 2*each)
		Expect(reads["ns/m-red"] - exhausted).To(And(BeNumerically(">", 0), BeNumerically("<=", readsPerSecond)))
	})
}

// hugeReview is nearly the size of the largest accepted review, in bytes.
const hugeReview = 3 << 20

// filling returns a list of texts with this size in total. Each text has another number.
func filling(size int, format string) string {
	var all strings.Builder
	for i := 0; all.Len() < size; i++ {
		if i > 0 {
			all.WriteByte(',')
		}
		fmt.Fprintf(&all, format, i)
	}
	return all.String()
}

// A client may send reviews of any size about its own objects: their cost is linear in the size. With a higher cost, these tests would not
// end.
func TestHugeReviewsAreAnswered(t *testing.T) {
	declares := "{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {namespace: ns, name: m, labels: {team: a}, annotations: {taints.heirloom.dev/always: 'x:NoSchedule'}}, spec: {clusterName: c}, status: {nodeRef: {name: node-1}}}"
	with := ordinary.with(func(f *fleet) { f.machines = map[string]string{"ns/m": declares} })
	for name, tc := range map[string]struct{ path, kind, object string }{
		"taints of a Node":           {path: NodesPath, kind: "Node", object: `{"metadata":{"name":"node-1"},"spec":{"taints":[` + filling(hugeReview/2, `{"key":"k%d","effect":"x"}`) + `]}}`},
		"addresses of a Node":        {path: NodesPath, kind: "Node", object: `{"metadata":{"name":"node-1"},"status":{"addresses":[` + filling(hugeReview/2, `{"type":"InternalIP","address":"%d"}`) + `]}}`},
		"tracked taints of a Node":   {path: NodesPath, kind: "Node", object: `{"metadata":{"name":"node-1","annotations":{"heirloom.dev/taints-from-machine":"` + filling(hugeReview/4, "k%d:x") + `"}},"spec":{"taints":[` + filling(hugeReview/4, `{"key":"k%d","effect":"y"}`) + `]}}`},
		"taints of a Machine":        {path: PathOf(owners.Machines), kind: "Machine", object: `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine","metadata":{"namespace":"ns","name":"m","ownerReferences":[{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"MachineSet","name":"ms","uid":"ms","controller":true}]},"spec":{"clusterName":"c","taints":[` + filling(hugeReview/2, `{"key":"k%d","effect":"x"}`) + `]}}`},
		"annotated taints":           {path: PathOf(owners.Machines), kind: "Machine", object: `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine","metadata":{"namespace":"ns","name":"m","annotations":{"taints.heirloom.dev/always":"` + filling(hugeReview/2, "k%d:NoExecute") + `"}},"spec":{"clusterName":"c"}}`},
		"taints to validate":         {path: TaintsPath, kind: "Machine", object: `{"spec":{"taints":[` + filling(hugeReview/2, `{"key":"k%d","effect":"NoSchedule","propagation":"Always"}`) + `]}}`},
		"invalid taints to validate": {path: TaintsPath, kind: "Machine", object: `{"metadata":{"annotations":{"taints.heirloom.dev/always":"` + filling(hugeReview/2, "k%d") + `"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			handler := mux(t, newServer(t, with, nil, inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled, PaceEviction: true}))
			body := write{kind: tc.kind, object: tc.object, old: tc.object}.review(t)
			review := ask(t, handler, tc.path, body)
			NewWithT(t).Expect(review.Response.UID).To(BeEquivalentTo("uid"), "%+v", review.Response.Result)
		})
	}
}
