// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
)

// starting is a replica that starts, as a memoryReturn sees it.
type starting struct {
	memoryReturn
	filled, elected chan struct{}
	// working is whether there is something to do, and unknown whether that cannot be told.
	working, unknown atomic.Bool
	released         atomic.Int64
}

func newStarting() *starting {
	s := &starting{filled: make(chan struct{}), elected: make(chan struct{})}
	s.working.Store(true)
	s.memoryReturn = memoryReturn{
		log: logr.Discard(), elected: s.elected,
		filled: func(ctx context.Context) bool {
			select {
			case <-s.filled:
				return true
			case <-ctx.Done():
				return false
			}
		},
		busy: func() (bool, error) {
			if s.unknown.Load() {
				return false, errors.New("unknown")
			}
			return s.working.Load(), nil
		},
		release: func() { s.released.Add(1) },
	}
	return s
}

func (s *starting) start(t *testing.T) { go func() { _ = s.Start(t.Context()) }() }

func later() {
	<-time.After(time.Minute) // in the time of the test
	synctest.Wait()
}

// The leader returns memory when it has gone through everything for the first time, and not again.
func TestTheLeaderReturnsMemoryOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		s := newStarting()
		s.start(t)
		s.working.Store(false)
		later()
		Expect(s.released.Load()).To(BeEquivalentTo(0), "its caches are not filled")
		s.working.Store(true)
		close(s.filled)
		close(s.elected)
		later()
		Expect(s.released.Load()).To(BeEquivalentTo(0), "it has not gone through everything")
		s.working.Store(false)
		s.unknown.Store(true)
		later()
		Expect(s.released.Load()).To(BeEquivalentTo(0), "it may not have gone through everything")
		s.unknown.Store(false)
		later()
		Expect(s.released.Load()).To(BeEquivalentTo(1))
		s.working.Store(true)
		later()
		s.working.Store(false)
		later()
		Expect(s.released.Load()).To(BeEquivalentTo(1))
	})
}

// A queue is empty for a moment between two steps of the start. That does not count.
func TestAMomentWithoutWorkIsNotTheEndOfTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		s := newStarting()
		looks := 0
		s.busy = func() (bool, error) {
			looks++
			return looks%2 == 0 && looks < 10, nil
		}
		s.start(t)
		close(s.filled)
		<-time.After(9*settling + settling/2) // in the time of the test
		synctest.Wait()
		Expect(s.released.Load()).To(BeEquivalentTo(0))
		later()
		Expect(s.released.Load()).To(BeEquivalentTo(1))
	})
}

// A replica that does not lead returns memory when its caches are filled, and once more when it has become the leader.
func TestAReplicaReturnsMemoryBeforeItLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		s := newStarting()
		s.start(t)
		s.working.Store(false)
		close(s.filled)
		later()
		Expect(s.released.Load()).To(BeEquivalentTo(1))
		s.working.Store(true)
		close(s.elected)
		later()
		Expect(s.released.Load()).To(BeEquivalentTo(1))
		s.working.Store(false)
		later()
		Expect(s.released.Load()).To(BeEquivalentTo(2))
	})
}

// A program that is stopped while it starts ends at once.
func TestReturningMemoryEndsWithTheProgram(t *testing.T) {
	for name, at := range map[string]func(*starting){
		"caches":   func(*starting) {},
		"work":     func(s *starting) { close(s.filled) },
		"election": func(s *starting) { close(s.filled); s.working.Store(false) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				s := newStarting()
				s.start(t)
				at(s)
				later()
				released := s.released.Load()
				ctx, stop := context.WithCancel(t.Context())
				stop()
				Expect(s.Start(ctx)).To(Succeed())
				Expect(s.released.Load()).To(Equal(released))
			})
		})
	}
}

// Work is what waits in a queue, and what a worker is at.
func TestBusy(t *testing.T) {
	Expect := NewWithT(t).Expect
	registry := prometheus.NewRegistry()
	for _, name := range []string{"workqueue_depth", "controller_runtime_active_workers", "workqueue_adds_total"} {
		gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name}, []string{"controller"})
		registry.MustRegister(gauge)
		gauge.WithLabelValues("machine").Set(0)
		gauge.WithLabelValues("node").Set(1)
		Expect(busy(registry)).To(Equal(name != "workqueue_adds_total"), name)
		gauge.WithLabelValues("node").Set(0)
		Expect(busy(registry)).To(BeFalse(), name)
	}
}

// On a busy machine memory is not returned at once. A replica that is told to stop meanwhile does not wait for it.
func TestAStopDoesNotWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		s := newStarting()
		busy := make(chan struct{})
		s.release = func() { <-busy }
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Start(ctx) }()
		s.working.Store(false)
		close(s.filled)
		later()
		Expect(ended).NotTo(Receive(), "it is returning memory")
		stop()
		synctest.Wait()
		Expect(ended).To(Receive(BeNil()))
		close(busy)
	})
}
