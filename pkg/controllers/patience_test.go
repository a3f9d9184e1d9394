// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// A kind whose writes nobody answers occupies all workers once, for a while, and then few of them, until one is answered.
func TestAKindThatDoesNotAnswerLeavesWorkersToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		p, dead := newPatience(), schema.GroupKind{Group: inherit.InfrastructureGroup, Kind: "DeadMachine"}
		waits := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		// all returns what came of so many writes at a time, and how long they took.
		all := func(workers int) (late, unanswered int, took time.Duration) {
			began, errs := time.Now(), make(chan error, workers)
			for range workers {
				go func() { errs <- p.with(t.Context(), dead, waits) }()
			}
			for range workers {
				if err := <-errs; errors.Is(err, errLate) {
					late++
				} else {
					Expect(err).To(MatchError(context.DeadlineExceeded))
					unanswered++
				}
			}
			return late, unanswered, time.Since(began)
		}
		late, unanswered, took := all(10)
		Expect([]int{late, unanswered}).To(Equal([]int{0, 10}))
		Expect(took).To(Equal(answerTimeout))
		late, unanswered, _ = all(10)
		Expect([]int{late, unanswered}).To(Equal([]int{10 - mostForLate, mostForLate}))
		for range mostForLate {
			go func() { _ = p.with(t.Context(), dead, waits) }()
		}
		synctest.Wait()
		other := schema.GroupKind{Group: inherit.InfrastructureGroup, Kind: "OtherMachine"}
		for range 10 {
			Expect(p.with(t.Context(), other, func(context.Context) error { return nil })).To(Succeed(), "those of another kind find a worker")
			Expect(p.with(t.Context(), dead, waits)).To(MatchError(errLate))
		}
		<-time.After(answerTimeout)
		synctest.Wait()

		refused := errors.New("refused")
		Expect(p.with(t.Context(), dead, func(context.Context) error { return refused })).To(MatchError(refused))
		late, unanswered, _ = all(10)
		Expect([]int{late, unanswered}).To(Equal([]int{0, 10}), "an answer is an answer")
		Expect(p.writing[dead]).To(BeZero())
	})
}

// Others are not bounded by it, and a program that stops says nothing about a kind.
func TestPatienceIsForProvidersOnly(t *testing.T) {
	Expect := NewWithT(t).Expect
	p, bounded := newPatience(), false
	look := func(ctx context.Context) error {
		_, bounded = ctx.Deadline()
		return ctx.Err()
	}
	Expect(p.with(t.Context(), schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}, look)).To(Succeed())
	Expect(bounded).To(BeFalse())
	own := schema.GroupKind{Group: inherit.BootstrapGroup, Kind: "AcmeConfig"}
	Expect(p.with(t.Context(), own, look)).To(Succeed())
	Expect(bounded).To(BeTrue())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Expect(p.with(ctx, own, look)).To(MatchError(context.Canceled))
	Expect(p.late[own]).To(BeFalse())
}
