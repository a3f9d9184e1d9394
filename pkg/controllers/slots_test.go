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
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/test/sim/fakeclient"
)

// hangs is a request without an answer. answers is a request with an immediate answer.
func hangs() (bool, error) {
	<-time.After(nodeTimeout)
	return true, fmt.Errorf("patching: %w", context.DeadlineExceeded)
}

func answers() (bool, error) { return true, nil }

// A hundred clusters with twenty Nodes each answer no write. Nodes of a healthy cluster wait less than a second for a worker, whether or not
// the other clusters have answered before.
func TestAHundredHangingClusters(t *testing.T) {
	for name, before := range map[string]time.Duration{"from the beginning": -1, "while they have much to do": 0, "after they had answered": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, queue, over := newSlots[string](perCluster), make(chan request, 100_000), make(chan struct{})
				if before >= 0 {
					for c := range 100 {
						_, _ = s.try(fmt.Sprint("hangs-", c), answers)
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
				NewWithT(t).Expect(slices.Max(waited)).To(BeNumerically("<", time.Second))
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

func TestUnanswered(t *testing.T) {
	for err, want := range map[error]bool{
		context.DeadlineExceeded: true, apierrors.NewTimeoutError("no informer", 0): true, nil: false,
		context.Canceled: false, errors.New("connection refused"): false, apierrors.NewTooManyRequests("later", 1): false,
	} {
		NewWithT(t).Expect(unanswered(errors.Join(errors.New("other"), err))).To(Equal(want), "%v", err)
	}
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

// The loop does not remember a Node that is gone: otherwise it would grow with each Node, and look for all of them after each reconnection.
func TestNodesThatAreGoneAreNotRemembered(t *testing.T) {
	Expect := NewWithT(t).Expect
	counted, err := metrics.New(prometheus.NewRegistry())
	Expect(err).NotTo(HaveOccurred())
	gone := NodeRequest{Cluster: types.NamespacedName{Namespace: "ns", Name: "c"}, Name: "gone"}
	r := newNodes(&Dependencies{
		Client: fakeclient.New(), Metrics: counted, ManagementCluster: gone.Cluster, Policy: func() inherit.Policy { return inherit.Policy{} },
	})
	Expect(r.Reconcile(t.Context(), gone)).To(BeZero())
	Expect(r.known(gone.Cluster)).To(BeEmpty())
}
