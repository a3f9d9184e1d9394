// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// The rule of an entry depends on where it is: a MachineSet's own annotations have another than the rest, and what an object tells
// cluster-autoscaler has one of its own.
func TestTheRuleOfAnEntry(t *testing.T) {
	g := NewWithT(t)
	own := inherit.Entry{What: "annotation", Name: inherit.CapacityTaintsAnnotation, Own: true}
	template := inherit.Entry{What: "annotation", Name: inherit.CapacityTaintsAnnotation}
	decided := Decision{}
	g.Expect(decided.Rule(own)).To(BeZero())
	decided = decided.by(2)
	g.Expect(decided.Rule(own)).To(Equal(2))
	decided.Desired.Top.Claims = map[string]inherit.Claim{inherit.CapacityTaintsAnnotation: inherit.Yielding}
	decided = decided.tells(func() inherit.Object { return inherit.Object{} })
	g.Expect(decided.Rule(own)).To(Equal(CapacityRule))
	g.Expect(decided.Rule(template)).To(Equal(2))

	g.Expect(machineSetRule(own)).To(Equal(5))
	g.Expect(machineSetRule(template)).To(Equal(6))
	g.Expect(machineSetRule(inherit.Entry{What: "label", Own: true})).To(Equal(6))

	for what, want := range map[string]int{"label": 11, "annotation": 12, "taint": 13} {
		g.Expect(NodeDecision{}.Rule(inherit.Entry{What: what})).To(Equal(want), what)
	}
}
