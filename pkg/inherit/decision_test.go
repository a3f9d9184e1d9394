// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// What an owner brought stays while there is none, apart from taints that Cluster API refuses.
func TestKeeps(t *testing.T) {
	for _, tc := range []struct {
		entry inherit.Entry
		// stays and staysRefused say what becomes of an entry of Heirloom's without an owner; owned, that there must have been one.
		stays, staysRefused, owned bool
	}{
		{entry: inherit.Entry{What: "label", Name: "a", Own: true}, stays: true, staysRefused: true, owned: true},
		{entry: inherit.Entry{What: "field", Name: "minReadySeconds"}, stays: true, staysRefused: true, owned: true},
		{entry: inherit.Entry{What: "taint", Name: "a:NoSchedule", Own: true}, stays: true},
		{entry: inherit.Entry{What: "taint", Name: "a:NoSchedule"}, stays: true, owned: true},
		{entry: inherit.Entry{What: "annotation", Name: inherit.CapacityTaintsAnnotation, Own: true}},
	} {
		t.Run(tc.entry.What+" "+tc.entry.Name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			Expect(inherit.Decision{Outcome: inherit.NoOwner}.Keeps(tc.entry)).To(Equal(tc.stays))
			Expect(inherit.Decision{Outcome: inherit.NoOwner, TaintsRefused: true}.Keeps(tc.entry)).To(Equal(tc.staysRefused))
			Expect(inherit.Decision{Outcome: inherit.Inherits}.Keeps(tc.entry)).To(BeFalse())
			Expect(tc.entry.FromOwner()).To(Equal(tc.owned))
		})
	}
}

// An annotation that yields is none that is declared by the same name.
func TestWithYielding(t *testing.T) {
	Expect := NewWithT(t).Expect
	declared := inherit.Content{Annotations: map[string]string{"a": "declared"}}
	got := declared.WithYielding(map[string]string{"a": "told", "b": "told"})
	Expect(got.Annotations).To(Equal(map[string]string{"a": "declared", "b": "told"}))
	Expect(got.Claims).To(Equal(map[string]inherit.Claim{"b": inherit.Yielding}))
	Expect(declared.Annotations).To(HaveLen(1), "the input is not mutated")
}
