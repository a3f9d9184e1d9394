// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"
)

func TestWhatIsDue(t *testing.T) {
	last := noon.Add(usual.CAValidity)
	for _, tc := range []struct {
		name string
		// change prepares the state that was begun at noon; at is when it is looked at.
		change func(*state)
		at     time.Time
		// leaf and cas say whether there is another serving certificate, and how many CAs there are then.
		unchanged, leaf bool
		cas             int
		current         func(before state) *tls.Certificate
	}{
		{name: "nothing at first", at: noon.Add(time.Second), unchanged: true, cas: 1},
		{name: "nothing while more than a third is left", at: noon.Add(80 * time.Minute), unchanged: true, cas: 1},
		{name: "a certificate of which a third is left", at: noon.Add(80*time.Minute + time.Second), leaf: true, cas: 1},
		{name: "a certificate for other hosts", change: func(st *state) { st.leaf.Leaf.DNSNames = []string{"elsewhere"} }, at: noon, leaf: true, cas: 1},
		{name: "no certificate", change: func(st *state) { st.leaf = nil }, at: noon, leaf: true, cas: 1},
		{name: "a certificate of tomorrow", change: func(st *state) { st.leaf.Leaf.NotBefore = noon.Add(time.Hour) }, at: noon, leaf: true, cas: 1},
		{name: "a CA of which a third is left", at: noon.Add(8*time.Hour + time.Second), leaf: true, cas: 2},
		{name: "not a next CA that is not published", change: with(func(st *state) { st.nextPublished = time.Time{} }), at: noon.Add(time.Hour), unchanged: true, cas: 2},
		{name: "not a next CA that is published for a moment", change: with(nil), at: noon.Add(usual.Grace - time.Second), unchanged: true, cas: 2},
		{name: "not a next CA that a clock which is ahead calls published", change: with(nil), at: noon.Add(-time.Minute), unchanged: true, cas: 2},
		{
			name: "a next CA that is published for the grace", change: with(nil), at: noon.Add(usual.Grace), leaf: true, cas: 2,
			current: func(before state) *tls.Certificate { return before.next },
		},
		{name: "not a previous CA for the grace", change: replaced(noon), at: noon.Add(usual.Grace - time.Second), unchanged: true, cas: 2},
		{name: "a previous CA after the grace", change: replaced(noon), at: noon.Add(usual.Grace), cas: 1},
		{name: "a previous CA of which nobody knows since when", change: replaced(time.Time{}), at: noon.Add(usual.Grace), cas: 2},
		{name: "a previous CA whose replacement is dated tomorrow", change: replaced(noon.Add(24 * time.Hour)), at: noon, cas: 2},
		{name: "not a certificate that ends with its CA", change: func(st *state) { st.leaf.Leaf.NotAfter = last }, at: last.Add(-time.Minute), cas: 2},
		{name: "everything, when the CA has ended", at: last.Add(time.Second), leaf: true, cas: 1, current: func(state) *tls.Certificate { return nil }},
		{name: "everything, when the CA has ended and there is one before it", change: replaced(noon), at: last.Add(time.Second), leaf: true, cas: 1, current: func(state) *tls.Certificate { return nil }},
		{name: "a next CA, when the current one has ended", change: with(func(st *state) { st.nextPublished = time.Time{} }),
			at: last.Add(time.Second), leaf: true, cas: 1, current: func(before state) *tls.Certificate { return before.next }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			before := begun(t, noon)
			if tc.change != nil {
				tc.change(&before)
			}
			after, changed, err := usual.advance(before, tc.at)
			Expect(err).NotTo(HaveOccurred())
			Expect(changed).To(Equal(!tc.unchanged))
			Expect(after.leaf == before.leaf).To(Equal(!tc.leaf), "the serving certificate")
			Expect(after.cas()).To(HaveLen(tc.cas))
			Expect(after.leaf.Leaf.CheckSignatureFrom(after.current.Leaf)).To(Succeed())
			Expect(after.leaf.Leaf.NotAfter.After(after.current.Leaf.NotAfter)).To(BeFalse())
			switch {
			case tc.current == nil:
				Expect(after.current).To(BeIdenticalTo(before.current))
			case tc.current(before) == nil:
				Expect(after.current).NotTo(BeIdenticalTo(before.current))
			default:
				Expect(after.current).To(BeIdenticalTo(tc.current(before)))
			}
		})
	}
}

// with gives a state a next CA that is published since noon.
func with(change func(*state)) func(*state) {
	return func(st *state) {
		next, err := newAuthority(noon, 2*usual.CAValidity)
		if err != nil {
			panic(err)
		}
		st.next, st.nextPublished = next, noon
		if change != nil {
			change(st)
		}
	}
}

// replaced gives a state a previous CA that was replaced then.
func replaced(since time.Time) func(*state) {
	return func(st *state) {
		previous, err := newAuthority(noon.Add(-time.Hour), usual.CAValidity)
		if err != nil {
			panic(err)
		}
		st.previous, st.currentSince = previous.Leaf, since
	}
}

// In a rolling update replicas have different hosts. They do not take them away from each other.
func TestReplicasWithOtherHostsAgree(t *testing.T) {
	Expect := NewWithT(t).Expect
	other := usual
	other.Hosts = []string{"heirloom.example.com", "fd00::1", "127.0.0.1"}
	st, changed, err := other.advance(begun(t, noon), noon)
	Expect(err).NotTo(HaveOccurred())
	Expect(changed).To(BeTrue())
	Expect(hostsOf(st.leaf.Leaf)).To(Equal(sets.New(usual.Hosts...).Insert(other.Hosts...)))
	for _, schedule := range []Schedule{usual, other} {
		_, changed, err = schedule.advance(st, noon)
		Expect(err).NotTo(HaveOccurred())
		Expect(changed).To(BeFalse())
	}
	st, _, err = other.advance(st, noon.Add(90*time.Minute))
	Expect(err).NotTo(HaveOccurred())
	Expect(hostsOf(st.leaf.Leaf)).To(Equal(sets.New(other.Hosts...)), "what is no longer needed goes with the renewal")
}

// A client whose clock is behind finds valid what was just made.
func TestClocksMayBeBehind(t *testing.T) {
	st := begun(t, noon)
	NewWithT(t).Expect(validAt(st.leaf.Leaf, noon.Add(-skew))).To(BeTrue())
	NewWithT(t).Expect(validAt(st.current.Leaf, noon.Add(-skew))).To(BeTrue())
}

func TestHowOftenToLook(t *testing.T) {
	Expect := NewWithT(t).Expect
	Expect(Schedule{Validity: 2160 * time.Hour, Grace: 24 * time.Hour}.look()).To(Equal(time.Minute))
	Expect(Schedule{Validity: 12 * time.Second, Grace: 2 * time.Second}.look()).To(Equal(500 * time.Millisecond))
}
