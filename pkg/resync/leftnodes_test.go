// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

// A Node is left to Cluster API as long as that writes Nodes of the same cluster, and not longer than it takes for all that it has in hand.
func TestHowLongNodesAreLeft(t *testing.T) {
	Expect := NewWithT(t).Expect
	now := time.Unix(0, 0)
	c := newCourtesy(func() time.Time { return now })
	after := func(d time.Duration) { now = now.Add(d) }
	other := NodeRequest{Cluster: types.NamespacedName{Namespace: "ns", Name: "staging"}, Name: "node-0"}

	Expect(c.wait(nodeOf(0))).To(Equal(time.Second))
	for n := range 5 {
		after(900 * time.Millisecond)
		Expect(c.wait(nodeOf(1+n))).To(Equal(time.Second), "it is new")
		c.written(nodeOf(1 + n))
		Expect(c.wait(nodeOf(0))).To(Equal(time.Second), "another Node has been written")
	}
	after(700 * time.Millisecond)
	Expect(c.wait(nodeOf(0))).To(Equal(300 * time.Millisecond))
	c.forget(nodeOf(6))
	c.written(nodeOf(7)) // which was not left
	Expect(c.wait(nodeOf(0))).To(Equal(300 * time.Millisecond))
	Expect(c.wait(nodeOf(6))).To(Equal(time.Second))
	after(200 * time.Millisecond)
	c.written(nodeOf(6))
	Expect(c.wait(nodeOf(0))).To(Equal(600*time.Millisecond), "six seconds are the most")
	Expect(c.wait(other)).To(Equal(time.Second))
	after(600 * time.Millisecond)
	Expect(c.wait(nodeOf(0))).To(BeZero())
	Expect(c.wait(other)).To(Equal(400*time.Millisecond), "what is written elsewhere tells nothing")
	c.forget(nodeOf(0))
	Expect(c.wait(nodeOf(0))).To(Equal(time.Second), "it begins anew")
	for _, node := range []NodeRequest{nodeOf(0), other} {
		c.forget(node)
	}
	Expect(c.clusters).To(BeEmpty())
}

// Cluster API has so many Nodes of a cluster in hand and no more. Those that nobody asks about any more count for a minute at most.
func TestHowManyNodesAreLeft(t *testing.T) {
	Expect := NewWithT(t).Expect
	now := time.Unix(0, 0)
	c := newCourtesy(func() time.Time { return now })
	for n := range inHand {
		Expect(c.wait(nodeOf(n))).To(Equal(time.Second))
	}
	Expect(c.wait(nodeOf(inHand))).To(BeZero())
	Expect(c.wait(nodeOf(0))).To(Equal(time.Second), "it is one of them")
	c.written(nodeOf(0))
	Expect(c.wait(nodeOf(inHand))).To(Equal(time.Second))
	Expect(c.wait(nodeOf(inHand + 1))).To(BeZero())

	now = now.Add(courtesyOfNodes)
	Expect(c.wait(nodeOf(1))).To(BeZero())
	Expect(c.wait(nodeOf(inHand+1))).To(Equal(time.Second), "the others have waited long enough")
	now = now.Add(10 * courtesyOfNodes)
	Expect(c.wait(nodeOf(inHand + 2))).To(Equal(time.Second))
	Expect(c.clusters[nodeOf(0).Cluster].since).To(HaveLen(2))
}
