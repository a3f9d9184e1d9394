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

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestNodesAreTaintedAtARate(t *testing.T) {
	Expect := NewWithT(t).Expect
	now, p := noon, &pace.Pacer{}
	take := func(cluster string, nodes int) (time.Duration, string) {
		limits := pace.Limits(cluster, 2, "set of "+cluster, nodes)
		wait, name := p.Wait(now, limits)
		_, taken := p.Take(now, limits)
		Expect(taken).To(Equal(wait))
		return wait, name
	}
	wait := func(cluster string, nodes int) string {
		wait, name := take(cluster, nodes)
		return fmt.Sprint(wait, " ", name)
	}
	Expect(wait("a", 100)).To(Equal("0s "), "there is room for one at the beginning")
	Expect(wait("a", 100)).To(Equal("30s a"), "the Cluster's rate is slower than a tenth of a hundred Nodes a minute")
	Expect(wait("b", 5)).To(Equal("0s "), "another Cluster has a rate of its own")
	Expect(wait("b", 5)).To(Equal("1m0s set of b"), "a small set gives one Node a minute")
	now = now.Add(30 * time.Second)
	Expect(wait("a", 100)).To(Equal("0s "))
	Expect(wait("b", 5)).To(Equal("30s set of b"))
	Expect(wait("b", 11)).To(Equal("0s "), "the set has more Nodes now")
}

// If a limit has no room, the other limit keeps its room.
func TestAFullLimitTakesNothing(t *testing.T) {
	Expect := NewWithT(t).Expect
	p := &pace.Pacer{}
	take := func(limits [2]pace.Limit) time.Duration {
		_, wait := p.Take(noon, limits)
		return wait
	}
	Expect(take(pace.Limits("c", 1, "x", 1))).To(BeZero())
	Expect(take(pace.Limits("c", 1, "y", 1))).To(Equal(time.Minute))
	Expect(take(pace.Limits("d", 1, "y", 1))).To(BeZero())
}

// A Node that could not be written returns its room.
func TestRoomIsGivenBack(t *testing.T) {
	Expect := NewWithT(t).Expect
	p, limits := &pace.Pacer{}, pace.Limits("c", 1, "x", 1)
	for range 2 {
		turn, wait := p.Take(noon, limits)
		Expect(wait).To(BeZero())
		turn.Cancel()
		turn.Cancel()
	}
	_, wait := p.Take(noon, limits)
	Expect(wait).To(BeZero())
	_, wait = p.Take(noon, limits)
	Expect(wait).To(Equal(time.Minute), "once")
	pace.Reservation{}.Cancel()
}

// A Node that gives its turn back late does not give back the turn that another Node has taken meanwhile.
func TestATurnIsGivenBackByItsNode(t *testing.T) {
	Expect := NewWithT(t).Expect
	p, limits := &pace.Pacer{}, pace.Limits("c", 60, "x", 600)
	first, _ := p.Take(noon, limits)
	_, wait := p.Take(noon.Add(time.Second), limits)
	Expect(wait).To(BeZero())
	first.Cancel()
	_, wait = p.Take(noon.Add(1300*time.Millisecond), limits)
	Expect(wait).To(Equal(700 * time.Millisecond))
}

func TestASetGivesATenth(t *testing.T) {
	for nodes, perMinute := range map[int]float64{0: 1, 1: 1, 10: 1, 11: 2, 100: 10, 101: 11} {
		NewWithT(t).Expect(pace.Limits("c", 5, "md", nodes)).To(Equal([2]pace.Limit{{Name: "md", PerMinute: perMinute}, {Name: "c", PerMinute: 5}}))
	}
}

// The slowest possible rate is slow, and does not overflow.
func TestTheSlowestRate(t *testing.T) {
	p, limits := &pace.Pacer{}, pace.Limits("c", math.SmallestNonzeroFloat64, "x", 1)
	p.Take(noon, limits)
	wait, _ := p.Wait(noon, limits)
	NewWithT(t).Expect(wait).To(BeNumerically(">", 365*24*time.Hour))
}

// No limit lets more Nodes be tainted in any minute than it allows, for any order of requests and any shared limits. If a Cluster gives at most
// one turn a minute, none of its sets makes a Node wait for longer. In the end all Nodes are tainted.
func TestNoLimitIsExceededInAnyMinute(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { rollOut(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func rollOut(t *testing.T, dice *rand.Rand) {
	t.Helper()
	Expect := NewWithT(t).Expect
	perMinute := []float64{0.5, 1, 3, 7.5, 60}[dice.IntN(5)]
	var waiting [][2]pace.Limit
	for cluster := range 1 + dice.IntN(4) {
		for set := range 1 + dice.IntN(6) {
			size := 1 + dice.IntN(25)
			for range size {
				waiting = append(waiting, pace.Limits(fmt.Sprint("c", cluster), perMinute, fmt.Sprintf("c%d-%d", cluster, set), size))
			}
		}
	}
	now, p, tainted := noon, &pace.Pacer{}, map[string][]time.Time{} // by limit
	for range 2_000_000 {
		if len(waiting) == 0 {
			return
		}
		now = now.Add(time.Duration(dice.IntN(int(2 * time.Second))))
		i := dice.IntN(len(waiting))
		if alone, _ := p.Wait(now, pace.Limits(waiting[i][1].Name, perMinute, "", 0)); alone > 0 && perMinute <= 1 {
			if wait, name := p.Wait(now, waiting[i]); wait != alone || name != waiting[i][1].Name {
				t.Fatalf("%s has no room for %s, but %s for %s", waiting[i][1].Name, alone, name, wait)
			}
		}
		if _, wait := p.Take(now, waiting[i]); wait > 0 {
			continue
		}
		for _, limit := range waiting[i] {
			lately := 1
			for _, at := range tainted[limit.Name] {
				if now.Sub(at) < time.Minute {
					lately++
				}
			}
			Expect(float64(lately)).To(BeNumerically("<=", math.Ceil(limit.PerMinute)), "%s within a minute", limit.Name)
			tainted[limit.Name] = append(tainted[limit.Name], now)
		}
		waiting = append(waiting[:i], waiting[i+1:]...)
	}
	Expect(waiting).To(BeEmpty(), "not all are tainted")
}
