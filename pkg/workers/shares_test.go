// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

// A request in these tests is "<cluster>/<number>".
func clusterOf(request string) types.NamespacedName {
	cluster, _, _ := strings.Cut(request, "/")
	return types.NamespacedName{Name: cluster}
}

// next expects that a request which has been worked on makes room for that one; for none, if it is empty.
func (s *shares[R]) next(t *testing.T, done, next R) {
	t.Helper()
	var none R
	request, _, ok := s.give(done)
	NewWithT(t).Expect(request).To(Equal(next))
	NewWithT(t).Expect(ok).To(Equal(next != none))
}

// However many requests of one cluster wait, those of another are worked on. What waits comes in its order, once each.
func TestNoClusterTakesMoreThanItsShare(t *testing.T) {
	Expect := NewWithT(t).Expect
	s := newShares(2, clusterOf)
	Expect(s.take("red/1", 0)).To(BeTrue())
	Expect(s.take("red/2", 0)).To(BeTrue())
	for _, waits := range []string{"red/3", "red/4", "red/3"} {
		Expect(s.take(waits, 0)).To(BeFalse())
	}
	Expect(s.take("blue/1", 0)).To(BeTrue())
	s.next(t, "red/1", "red/3")
	Expect(s.take("red/5", 0)).To(BeFalse(), "the place is kept for the one that has waited")
	Expect(s.take("red/3", 0)).To(BeTrue())
	s.next(t, "red/2", "red/4")
	Expect(s.take("red/4", 0)).To(BeTrue())
	s.next(t, "red/3", "red/5")
	Expect(s.take("red/5", 0)).To(BeTrue())
	for _, done := range []string{"red/4", "red/5", "blue/1"} {
		s.next(t, done, "")
	}
	Expect(s.taken).To(BeEmpty(), "clusters that have gone are not remembered")
	Expect(s.lines).To(BeEmpty())
	Expect(s.granted).To(BeEmpty())
}

// A change goes before what is only looked at again, also if it is to an object that waits to be looked at again.
func TestTheMoreUrgentGoFirst(t *testing.T) {
	Expect := NewWithT(t).Expect
	s := newShares(1, clusterOf)
	Expect(s.take("red/0", 0)).To(BeTrue())
	for _, waits := range []struct {
		request  string
		priority int
	}{{"red/1", -100}, {"red/2", -100}, {"red/3", 0}, {"red/2", 0}, {"red/3", -100}} {
		Expect(s.take(waits.request, waits.priority)).To(BeFalse())
	}
	last := "red/0"
	for _, next := range []string{"red/3", "red/2", "red/1"} {
		s.next(t, last, next)
		Expect(s.take(next, 0)).To(BeTrue())
		last = next
	}
	s.next(t, last, "")
}
