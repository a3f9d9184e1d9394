// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/owners"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// hangs is a request without an answer. answers is a request with an immediate answer.
func hangs() (bool, error) {
	<-time.After(nodeTimeout)
	return true, fmt.Errorf("patching: %w", context.DeadlineExceeded)
}

func answers() (bool, error) { return true, nil }

// all sends requests at the same time, and returns the number that found a slot, and the sorted waiting times of the others.
func (s *slots[K]) all(key K, requests int, request func() (bool, error)) (sent int, waits []time.Duration) {
	var mu sync.Mutex
	var running sync.WaitGroup
	for range requests {
		running.Go(func() {
			again, _ := s.try(key, request)
			mu.Lock()
			defer mu.Unlock()
			if again > 0 {
				waits = append(waits, again)
			} else {
				sent++
			}
		})
	}
	running.Wait()
	slices.Sort(waits)
	return sent, waits
}

// A cluster has one slot until it has answered, and then all slots for a few seconds. Requests without a slot come again one after the
// other.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		s := newSlots[string](4)
		slowly := func() (bool, error) {
			<-time.After(time.Second)
			return true, nil
		}
		sent, waits := s.all("c", 5, slowly)
		Expect(sent).To(Equal(1))
		Expect(waits).To(Equal([]time.Duration{retrySpacing, 2 * retrySpacing, 3 * retrySpacing, 4 * retrySpacing}))
		sent, waits = s.all("c", 5, slowly)
		Expect(sent).To(Equal(4))
		Expect(waits).To(HaveLen(1))
		<-time.After(slowRetry)
		sent, _ = s.all("c", 5, slowly)
		Expect(sent).To(Equal(1), "the last answer is long ago")
		sent, _ = s.all("c", 5, func() (bool, error) { <-time.After(time.Second); return true, errors.New("forbidden") })
		Expect(sent).To(Equal(4), "a refusal is an answer")

		s.forget("c")
		sent, _ = s.all("c", 5, slowly)
		Expect(sent).To(Equal(1))

		<-time.After(slowRetry)
		for range 2 {
			sent, _ = s.all("c", 5, func() (bool, error) { <-time.After(nodeTimeout - time.Millisecond); return true, nil })
			Expect(sent).To(Equal(1), "an answer just in time does not prove a healthy server")
		}
	})
}

// After an unanswered request the cluster gets no request for a while, each time for longer, and then gets one request. A call that sends
// no request proves nothing.
func TestAnUnansweredRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		s := newSlots[string](4)
		s.all("c", 1, answers)
		sent, _ := s.all("c", 9, hangs)
		Expect(sent).To(Equal(4))
		for _, pause := range []time.Duration{5, 10, 20, 40, 60, 60} {
			pause *= time.Second
			sent, waits := s.all("c", 2, hangs)
			Expect(sent).To(BeZero())
			Expect(waits[0]).To(BeNumerically("~", pause, 100*time.Millisecond))
			<-time.After(pause)
			again, err := s.try("c", func() (bool, error) { return false, nil })
			Expect([]any{again, err}).To(Equal([]any{time.Duration(0), nil}))
			sent, waits = s.all("c", 3, hangs)
			Expect(sent).To(Equal(1))
			Expect(waits[0]).To(BeNumerically(">=", slowRetry))
		}
		<-time.After(longestPause)
		_, err := s.try("c", func() (bool, error) { return true, context.DeadlineExceeded })
		Expect(err).To(HaveOccurred())
		again, err := s.try("c", answers) // a request with too little time proves nothing
		Expect([]any{again, err}).To(Equal([]any{time.Duration(0), nil}))
		sent, _ = s.all("c", 9, func() (bool, error) { <-time.After(time.Second); return true, nil })
		Expect(sent).To(Equal(4))
	})
}

func TestWhatIsUnanswered(t *testing.T) {
	for err, want := range map[error]bool{
		context.DeadlineExceeded: true, apierrors.NewTimeoutError("no informer", 0): true, nil: false,
		context.Canceled: false, errors.New("connection refused"): false, apierrors.NewTooManyRequests("later", 1): false,
	} {
		NewWithT(t).Expect(unanswered(err)).To(Equal(want), "%v", err)
		NewWithT(t).Expect(unanswered(errors.Join(errors.New("other"), err))).To(Equal(want), "%v", err)
	}
}

// A request that ends after its cluster was forgotten does not change the slots of the next cluster with this name.
func TestAForgottenClusterWithWritesOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots[string](4)
		s.all("c", 1, answers)
		for range 4 {
			go func() { _, _ = s.try("c", hangs) }()
		}
		synctest.Wait()
		s.forget("c")
		s.all("c", 1, answers)
		<-time.After(nodeTimeout)
		sent, _ := s.all("c", 9, hangs)
		NewWithT(t).Expect(sent).To(Equal(1))
	})
}

// Each Cluster has its own limit for live decisions about its Nodes. Nodes beyond the limit come back one after the other, at the same rate.
func TestReadsOfAClusterAreLimited(t *testing.T) {
	s, allowed, now := newSlots[string](1), 0, time.Now()
	var waits []time.Duration
	for range 3 * liveNodes {
		if again := s.read("c", now); again > 0 {
			waits = append(waits, again)
			continue
		}
		allowed++
	}
	NewWithT(t).Expect(allowed).To(Equal(liveNodes))
	NewWithT(t).Expect(s.read("other", now)).To(BeZero())
	for i, wait := range waits {
		NewWithT(t).Expect(wait).To(Equal(time.Duration(i+1) * time.Second / liveNodes))
		NewWithT(t).Expect(s.read("c", now.Add(wait))).To(BeZero())
	}
}

// A hundred clusters with twenty Nodes each answer no write. Nodes of a healthy cluster wait at most five seconds for a worker, and usually
// much less, whether or not the other clusters have answered before.
func TestAHundredClustersThatHang(t *testing.T) {
	for name, before := range map[string]time.Duration{"from the beginning": -1, "while they have much to do": 0, "after they had answered": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, queue, over := newSlots[string](perCluster), make(chan request, 100_000), make(chan struct{})
				if before >= 0 {
					for c := range 100 {
						s.all(fmt.Sprint("hangs-", c), perCluster, answers)
					}
					<-time.After(before)
				}
				var mu sync.Mutex
				var waited []time.Duration
				done := func(r request) {
					mu.Lock()
					defer mu.Unlock()
					waited = append(waited, time.Since(r.since))
				}
				for range remoteWorkers {
					go works(s, queue, over, done)
				}
				for c := range 100 {
					for range 20 {
						queue <- request{cluster: fmt.Sprint("hangs-", c)}
					}
				}
				for range 600 { // a Node every half a second, for five minutes
					<-time.After(500 * time.Millisecond)
					queue <- request{"healthy", time.Now()}
				}
				<-time.After(10 * time.Second)
				close(over)
				mu.Lock()
				defer mu.Unlock()
				NewWithT(t).Expect(waited).To(HaveLen(600))
				slices.Sort(waited)
				NewWithT(t).Expect(waited[len(waited)*95/100]).To(BeNumerically("<", time.Second), "p95")
				NewWithT(t).Expect(waited[len(waited)-1]).To(BeNumerically("<=", 5*time.Second))
			})
		})
	}
}

// works is a worker. A request without a slot or without an answer comes again.
func works(s *slots[string], queue chan request, over chan struct{}, done func(request)) {
	for {
		select {
		case <-over:
			return
		case r := <-queue:
			do := hangs
			if r.cluster == "healthy" {
				do = answers
			}
			again, err := s.try(r.cluster, do)
			if err != nil {
				again = fastRetry
			}
			if again == 0 {
				done(r)
				continue
			}
			time.AfterFunc(again, func() {
				select {
				case queue <- r:
				case <-over:
				}
			})
		}
	}
}

// request is about a Node of a cluster. since is the time at which it began to wait.
type request struct {
	cluster string
	since   time.Time
}

// The loop does not remember owner kinds that no API server serves: a client that may write Machines could make up any number of kinds.
func TestMadeUpKindsAreNotRemembered(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := &clusterv1.Machine{}
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "controlplane.cluster.x-k8s.io/v1", Kind: "MadeUp", Name: "x", Controller: new(true)}}
	d := &Dependencies{Chain: &owners.Chain{Mapper: meta.NewDefaultRESTMapper(nil)}}
	kind, again, err := machines{d, &kindWatches[reconcile.Request]{}}.watchOwner(m)
	Expect(err).NotTo(HaveOccurred())
	Expect(again).To(BeNumerically(">", 0))
	Expect(kind).To(BeZero(), "the kind has no slots")
}
