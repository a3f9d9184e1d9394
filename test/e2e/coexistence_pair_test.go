// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// pair is a world without Heirloom and one with it. What is played in them is played on what came before: API servers and
// managers take long to start, and a fleet has a past.
type pair struct {
	t               *testing.T
	alone, together *world
}

// newPair makes both worlds; the one without Heirloom differs in nothing else.
func newPair(t *testing.T, s setting) *pair {
	t.Helper()
	p := &pair{t: t}
	without := s
	without.heirloom = false
	var both sync.WaitGroup
	both.Go(func() { p.alone = newWorld(t, without) })
	both.Go(func() { p.together = newWorld(t, s) })
	both.Wait()
	p.stopOnFailure()
	return p
}

// stopOnFailure ends the test if something failed elsewhere than in its own goroutine.
func (p *pair) stopOnFailure() {
	if p.t.Failed() {
		p.t.FailNow()
	}
}

// play plays a scenario as a part of the test. Those after it need how it ends.
func (p *pair) play(name string, scenario func(*pair)) {
	whole := p.t
	defer p.in(whole)
	if !whole.Run(name, func(t *testing.T) {
		p.in(t)
		scenario(p)
	}) {
		whole.FailNow()
	}
}

func (p *pair) in(t *testing.T) {
	p.t = t
	p.alone.in(t)
	p.together.in(t)
}

// do does the same in both, everything at once.
func (p *pair) do(what ...func(*world)) {
	p.t.Helper()
	var all sync.WaitGroup
	for _, w := range []*world{p.alone, p.together} {
		for _, do := range what {
			all.Go(func() { do(w) })
		}
	}
	all.Wait()
	p.stopOnFailure()
}

// step does the same in both and expects that both end the same.
func (p *pair) step(name string, what ...func(*world)) {
	p.t.Helper()
	p.do(what...)
	p.expectEqual(name)
}

// expectEqual lets both worlds settle and compares them.
func (p *pair) expectEqual(after string) {
	p.t.Helper()
	p.expectEqualParts(after, (*world).snapshot)
}

// expectEqualParts compares what a function returns of both worlds, and of their chains, when they have settled. On a busy machine, a controller
// may rest for longer than that, so that one world is behind; the worlds have to become equal without any further step.
func (p *pair) expectEqualParts(after string, parts func(w *world, chain []unstructured.Unstructured) []string) {
	p.t.Helper()
	begun := time.Now()
	diff := ""
	p.together.Eventually(func(g Gomega) {
		without, with := p.alone.expectSettled(g, begun), p.together.expectSettled(g, begun)
		diff = cmp.Diff(parts(p.alone, without), parts(p.together, with))
		g.Expect(diff).To(BeEmpty(), "Heirloom makes a difference (-without, +with)")
		g.Expect(min(p.alone.watched.since(), p.together.watched.since())).To(BeNumerically(">=", calm), "something was written meanwhile")
	}).Should(Succeed(), func() string { return "after " + after + ", the last difference (-without, +with):\n" + diff })
	p.t.Logf("%s: as without Heirloom, after %s", after, time.Since(begun).Round(100*time.Millisecond))
}

// expectNothingMore expects that both worlds end the same, and that Cluster API has created as much in both.
func (p *pair) expectNothingMore(after string) {
	p.t.Helper()
	p.expectEqual(after)
	p.expectSameCreations()
}

// expectSameCreations expects that Cluster API has made as many objects of every kind in both worlds: no revision, no Machine
// and no template more.
func (p *pair) expectSameCreations() {
	p.t.Helper()
	without, with := p.alone.writes().created(), p.together.writes().created()
	p.together.Expect(with).To(HaveKey("create machines"))
	p.together.Expect(cmp.Diff(without, with)).To(BeEmpty(), "creations (-without, +with)")
}

// writesOfBoth are what Cluster API has written in a pair's worlds up to now.
type writesOfBoth struct{ without, with writeCounts }

func (p *pair) writes() writesOfBoth { return writesOfBoth{p.alone.writes(), p.together.writes()} }

// expectNoMoreWrites expects that Cluster API did not have to write more beside Heirloom than alone since then. How often it
// repeats itself in all differs a little from run to run.
func (p *pair) expectNoMoreWrites(since writesOfBoth) {
	p.t.Helper()
	now := p.writes()
	without, with := now.without.since(since.without), now.with.since(since.with)
	p.t.Logf("Cluster API wrote, status aside, %d times without Heirloom and %d times beside it: %v", without.total(), with.total(), with)
	for _, what := range []string{"delete machines", "delete machinesets"} {
		p.together.Expect(with[what]).To(Equal(without[what]), what)
	}
	p.expectSameCreations()
	p.together.Expect(float64(with.total())).To(BeNumerically("<=", 1.2*float64(without.total())))
}
