// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

// A Node is left to Cluster API for a second, and for ten if Cluster API writes Nodes of the same cluster.
func TestHowLongNodesAreLeft(t *testing.T) {
	Expect := NewWithT(t).Expect
	now := time.Unix(0, 0)
	c := newCourtesy(func() time.Time { return now })
	after := func(d time.Duration) { now = now.Add(d) }
	other := NodeRequest{Cluster: types.NamespacedName{Namespace: "ns", Name: "staging"}, Name: "node-0"}

	Expect(c.wait(nodeOf(0))).To(Equal(time.Second))
	after(300 * time.Millisecond)
	Expect(c.wait(nodeOf(0))).To(Equal(700 * time.Millisecond))
	Expect(c.wait(nodeOf(1))).To(Equal(time.Second))
	Expect(c.wait(other)).To(Equal(time.Second))
	c.forget(nodeOf(1))
	c.written(nodeOf(2)) // which was not left
	Expect(c.wait(nodeOf(0))).To(Equal(700*time.Millisecond), "Cluster API has written nothing")
	after(700 * time.Millisecond)
	Expect(c.wait(nodeOf(0))).To(BeZero())

	Expect(c.wait(nodeOf(1))).To(Equal(time.Second), "it begins anew")
	c.written(nodeOf(1))
	Expect(c.wait(nodeOf(0))).To(Equal(9 * time.Second))
	Expect(c.wait(other)).To(Equal(300*time.Millisecond), "what is written elsewhere tells nothing")
	after(8 * time.Second)
	Expect(c.wait(nodeOf(3))).To(Equal(10 * time.Second))
	after(time.Second)
	Expect(c.wait(nodeOf(0))).To(BeZero())
	after(time.Second)
	Expect(c.wait(nodeOf(3))).To(BeZero(), "Cluster API has written nothing for ten seconds")
}

// Cluster API has so many Nodes of a cluster in hand and no more. Those that nobody asks about any more are forgotten.
func TestHowManyNodesAreLeft(t *testing.T) {
	Expect := NewWithT(t).Expect
	now := time.Unix(0, 0)
	c := newCourtesy(func() time.Time { return now })
	for n := range inHand {
		Expect(c.wait(nodeOf(n))).To(Equal(time.Second))
	}
	Expect(c.wait(nodeOf(inHand))).To(BeZero())
	Expect(c.wait(nodeOf(0))).To(Equal(time.Second), "it is one of them")
	c.forget(nodeOf(0))
	Expect(c.wait(nodeOf(inHand))).To(Equal(time.Second))
	Expect(c.wait(nodeOf(inHand + 1))).To(BeZero())

	now = now.Add(courtesyOfNodes)
	Expect(c.wait(nodeOf(1))).To(BeZero())
	Expect(c.wait(nodeOf(inHand+1))).To(Equal(time.Second), "the others have waited long enough")
	now = now.Add(10 * courtesyOfNodes)
	Expect(c.wait(nodeOf(inHand + 2))).To(Equal(time.Second))
	Expect(c.of(nodeOf(0).Cluster).since).To(HaveLen(2))
}
