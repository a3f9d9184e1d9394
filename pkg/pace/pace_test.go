// SPDX-License-Identifier: Apache-2.0

package pace_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/pace"
)

// clock is one that a test turns.
type clock struct{ time.Time }

func newClock() *clock { return &clock{time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time            { return c.Time }
func (c *clock) passes(d time.Duration)    { c.Time = c.Add(d) }
func limit(name string) pace.Limit         { return pace.Limit{Name: name} }
func named(kind string, number int) string { return fmt.Sprintf("%s-%d", kind, number) }

func TestNodesPassAtARate(t *testing.T) {
	Expect := NewWithT(t).Expect
	clock := newClock()
	pacer := pace.New[string](2, clock.now)
	pass := func(cluster, node string) bool {
		answer := pacer.Pass(node, cluster, limit(cluster))
		Expect(answer.OK || answer.Again == 30*time.Second).To(BeTrue(), "a caller that waits asks again when the next may pass")
		Expect(answer.OK || answer.HeldBy == cluster).To(BeTrue())
		return answer.OK
	}

	Expect(pass("a", "n1")).To(BeTrue(), "the first need not wait")
	Expect(pass("a", "n1")).To(BeTrue(), "nor does it wait to try again")
	Expect(pass("a", "n2")).To(BeFalse())
	Expect(pass("a", "n3")).To(BeFalse())
	Expect(pass("b", "n4")).To(BeTrue(), "another Cluster has a rate of its own")
	Expect(pacer.Waiting()).To(Equal(2))
	Expect(pacer.Known()).To(HaveLen(4))

	clock.passes(30 * time.Second)
	answer := pacer.Pass("n2", "a", limit("a"))
	Expect(answer.OK).To(BeTrue())
	Expect(answer.Progress).To(Equal(pace.Progress{Passed: 2, Waiting: 1}))
	Expect(pass("a", "n3")).To(BeFalse())

	pacer.Forget("n3")
	Expect(pacer.Waiting()).To(BeZero(), "the owner has changed its mind")
	Expect(pass("a", "n5")).To(BeFalse(), "which does not make the next one faster")
}

// What one limit has no room for takes nothing from the others.
func TestALimitThatHoldsTakesNothingFromTheOthers(t *testing.T) {
	Expect := NewWithT(t).Expect
	clock := newClock()
	pacer := pace.New[string](1, clock.now)
	Expect(pacer.Pass("n1", "class", limit("one"), limit("class")).OK).To(BeTrue())
	answer := pacer.Pass("n2", "class", limit("other"), limit("class"))
	Expect(answer.OK).To(BeFalse())
	Expect(answer.HeldBy).To(Equal("class"))
	Expect(pacer.Pass("n3", "other", limit("other")).OK).To(BeTrue())
}

// Where a taint comes from may change while a Node waits, or when it has passed and could not be written.
func TestANodeThatWaitsForSomethingElse(t *testing.T) {
	Expect := NewWithT(t).Expect
	pacer := pace.New[string](1, newClock().now)
	Expect(pacer.Pass("n1", "a", limit("a")).OK).To(BeTrue())
	Expect(pacer.Pass("n1", "b", limit("b")).OK).To(BeTrue())
	Expect(pacer.Pass("n2", "a", limit("a")).Progress).To(Equal(pace.Progress{Passed: 1, Waiting: 1}))
	Expect(pacer.Pass("n3", "a", limit("a")).Progress).To(Equal(pace.Progress{Passed: 1, Waiting: 2}))
	Expect(pacer.Pass("n3", "c", limit("a")).Progress).To(Equal(pace.Progress{Waiting: 1}))
	Expect(pacer.Pass("n2", "a", limit("a")).Progress).To(Equal(pace.Progress{Passed: 1, Waiting: 1}))
	Expect(pacer.Waiting()).To(Equal(2))
}

// Thousands that wait ask no more than twenty times a second, all together.
func TestManyThatWaitAskSeldom(t *testing.T) {
	Expect := NewWithT(t).Expect
	pacer := pace.New[int](60, newClock().now)
	for n := range 4000 {
		pacer.Pass(n, "c", limit("c"))
	}
	Expect(pacer.Pass(4001, "c", limit("c")).Again).To(Equal(200 * time.Second))
}

func TestAShareIsATenth(t *testing.T) {
	Expect := NewWithT(t).Expect
	for nodes, perMinute := range map[int]float64{0: 1, 1: 1, 10: 1, 11: 2, 100: 10, 101: 11} {
		Expect(pace.ShareOf("md", nodes)).To(Equal(pace.Limit{Name: "md", PerMinute: perMinute}))
	}
}

// However often Nodes ask, and whichever limits they share, no limit lets more of them pass in any minute than it may; and in
// the end all have passed.
func TestNoLimitIsExceededInAnyMinute(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { rollOut(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

type member struct {
	name   string
	limits []pace.Limit
}

// fleet are Nodes of sets in Clusters, of which some have the same class. It also returns what each limit allows in a minute.
func fleet(dice *rand.Rand, rate float64) (nodes []member, allowed map[string]float64) {
	allowed = map[string]float64{}
	for cluster := range 1 + dice.IntN(4) {
		for set := range 1 + dice.IntN(6) {
			size := 1 + dice.IntN(25)
			limits := []pace.Limit{pace.ShareOf(named(named("set", cluster), set), size), limit(named("cluster", cluster))}
			if dice.IntN(3) > 0 {
				limits = append(limits, limit("class"))
			}
			for node := range size {
				nodes = append(nodes, member{named(limits[0].Name, node), limits})
			}
			for _, l := range limits {
				allowed[l.Name] = math.Ceil(max(l.PerMinute, 0))
				if l.PerMinute == 0 {
					allowed[l.Name] = math.Ceil(rate)
				}
			}
		}
	}
	return nodes, allowed
}

func rollOut(t *testing.T, dice *rand.Rand) {
	t.Helper()
	Expect := NewWithT(t).Expect
	clock, rate := newClock(), []float64{0.5, 1, 3, 7.5, 60}[dice.IntN(5)]
	pacer := pace.New[string](rate, clock.now)
	waiting, allowed := fleet(dice, rate)
	passed := map[string][]time.Time{} // by limit
	for range 2_000_000 {
		if len(waiting) == 0 {
			break
		}
		clock.passes(time.Duration(dice.IntN(int(2 * time.Second))))
		i := dice.IntN(len(waiting))
		if dice.IntN(50) == 0 {
			pacer.Forget(waiting[i].name) // and comes back
		}
		if answer := pacer.Pass(waiting[i].name, "taint", waiting[i].limits...); !answer.OK {
			Expect(answer.Again).To(BeNumerically(">", 0))
			continue
		}
		for _, l := range waiting[i].limits {
			passed[l.Name] = append(passed[l.Name], clock.now())
			lately := 0
			for _, at := range passed[l.Name] {
				if clock.now().Sub(at) < time.Minute {
					lately++
				}
			}
			Expect(float64(lately)).To(BeNumerically("<=", allowed[l.Name]), "%s within a minute", l.Name)
		}
		waiting = append(waiting[:i], waiting[i+1:]...)
	}
	Expect(waiting).To(BeEmpty(), "not all have passed")
}

// Who waits as long as is said, and asks then, passes in good time.
func TestWhoAsksWhenItIsSaidPasses(t *testing.T) {
	Expect := NewWithT(t).Expect
	clock := newClock()
	pacer := pace.New[string](1, clock.now)
	start, passed := clock.now(), 0
	for set := range 500 { // one Node each, in five Clusters of one class
		name := named("md", set)
		for {
			answer := pacer.Pass(name, "class", pace.ShareOf(name, 1), limit(named("cluster", set%5)), limit("class"))
			if answer.OK {
				pacer.Forget(name)
				break
			}
			clock.passes(answer.Again)
		}
		passed++
	}
	Expect(passed).To(Equal(500))
	Expect(clock.now().Sub(start)).To(BeNumerically("~", 499*time.Minute, time.Minute))
}

func TestWithoutARateAllPass(t *testing.T) {
	Expect := NewWithT(t).Expect
	pacer := pace.New[string](0, time.Now)
	for n := range 100 {
		Expect(pacer.Pass(fmt.Sprint(n), "md", pace.ShareOf("md", 100), limit("c")).OK).To(BeTrue())
	}
	Expect(pacer.Waiting()).To(BeZero())
}
