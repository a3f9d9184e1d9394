// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

// A Node is left to Cluster API for two seconds, and for as long as Cluster API writes Nodes of the same cluster, but for a minute at most.
func TestHowLongNodesAreLeft(t *testing.T) {
	Expect := NewWithT(t).Expect
	now := time.Unix(0, 0)
	c := newCourtesy(func() time.Time { return now })
	after := func(d time.Duration) { now = now.Add(d) }
	other := NodeRequest{Cluster: types.NamespacedName{Namespace: "ns", Name: "staging"}, Name: "node-0"}

	Expect(c.wait(nodeOf(0))).To(Equal(2 * time.Second))
	after(300 * time.Millisecond)
	Expect(c.wait(nodeOf(0))).To(Equal(1700 * time.Millisecond))
	Expect(c.wait(nodeOf(1))).To(Equal(2 * time.Second))
	Expect(c.wait(other)).To(Equal(2 * time.Second))
	c.forget(nodeOf(1))
	c.written(nodeOf(2)) // which was not left
	Expect(c.wait(nodeOf(0))).To(Equal(1700*time.Millisecond), "Cluster API has written nothing")
	after(1700 * time.Millisecond)
	Expect(c.wait(nodeOf(0))).To(BeZero())

	Expect(c.wait(nodeOf(1))).To(Equal(2*time.Second), "it begins anew")
	c.written(nodeOf(1))
	Expect(c.wait(nodeOf(0))).To(Equal(10 * time.Second))
	Expect(c.wait(other)).To(Equal(300*time.Millisecond), "what is written elsewhere tells nothing")
	after(9 * time.Second)
	Expect(c.wait(nodeOf(3))).To(Equal(2*time.Second), "it is new")
	after(time.Second)
	Expect(c.wait(nodeOf(0))).To(BeZero(), "Cluster API has written nothing for ten seconds")
	Expect(c.wait(nodeOf(3))).To(Equal(time.Second))
	after(time.Second)
	Expect(c.wait(nodeOf(3))).To(BeZero())
}

// As long as Cluster API goes on writing Nodes, it may write this one next, but not for ever.
func TestNodesAreLeftForAMinuteAtMost(t *testing.T) {
	Expect := NewWithT(t).Expect
	now := time.Unix(0, 0)
	c := newCourtesy(func() time.Time { return now })
	for n := 1; n <= 12; n++ {
		Expect(c.wait(nodeOf(0))).NotTo(BeZero(), "after %s", now.Sub(time.Unix(0, 0)))
		Expect(c.wait(nodeOf(n))).NotTo(BeZero())
		c.written(nodeOf(n))
		Expect(c.wait(nodeOf(0))).To(Equal(min(10*time.Second, time.Unix(60, 0).Sub(now))))
		now = now.Add(5 * time.Second)
	}
	Expect(c.wait(nodeOf(0))).To(BeZero())
}

// Cluster API has so many Nodes of a cluster in hand and no more. Those that nobody asks about any more are forgotten.
func TestHowManyNodesAreLeft(t *testing.T) {
	Expect := NewWithT(t).Expect
	now := time.Unix(0, 0)
	c := newCourtesy(func() time.Time { return now })
	for n := range inHand {
		Expect(c.wait(nodeOf(n))).To(Equal(2 * time.Second))
	}
	Expect(c.wait(nodeOf(inHand))).To(BeZero())
	Expect(c.wait(nodeOf(0))).To(Equal(2*time.Second), "it is one of them")
	c.forget(nodeOf(0))
	Expect(c.wait(nodeOf(inHand))).To(Equal(2 * time.Second))
	Expect(c.wait(nodeOf(inHand + 1))).To(BeZero())

	now = now.Add(patienceWithNodes)
	Expect(c.wait(nodeOf(1))).To(BeZero())
	Expect(c.wait(nodeOf(inHand+1))).To(Equal(2*time.Second), "the others have waited long enough")
	now = now.Add(2 * patienceWithNodes)
	Expect(c.wait(nodeOf(inHand + 2))).To(Equal(2 * time.Second))
	Expect(c.of(nodeOf(0).Cluster).since).To(HaveLen(2))
}
