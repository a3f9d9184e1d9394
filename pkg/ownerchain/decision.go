// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Decision says what happens to an object of Cluster API, and where that is declared.
type Decision struct {
	inherit.Decision
	sources func(context.Context) inherit.Sources
	// rule returns the number of the rule by which the object inherits an entry.
	rule func(inherit.Entry) int
	// declaredBy are the objects that declare for this one: its owner, or a topology's Cluster and ClusterClass.
	declaredBy []client.Object
	// version names what is desired, if that depends on the owner alone.
	version Version
	// current returns what the object has now, if it tells cluster-autoscaler of its Nodes (rule 14); otherwise it is nil.
	current func() inherit.Object
}

// Sources says where what is inherited is declared, for a warning or an Event.
func (d Decision) Sources(ctx context.Context) inherit.Sources {
	if d.sources == nil {
		return inherit.Sources{}
	}
	return d.sources(ctx)
}

// CapacityRule is the number of the rule by which an object tells cluster-autoscaler of its Nodes. It has no owner.
const CapacityRule = 14

// Rule returns the number of the rule, as docs/rules.md has it, by which the object inherits an entry; 0 if there is none.
func (d Decision) Rule(e inherit.Entry) int {
	switch {
	case d.current != nil && e.Own && d.Desired.Top.Claims[e.Name] == inherit.Yielding:
		return CapacityRule
	case d.rule == nil:
		return 0
	}
	return d.rule(e)
}

// by says which rule the decision applies.
func (d Decision) by(rule int) Decision {
	d.rule = func(inherit.Entry) int { return rule }
	return d
}

func skip(why inherit.Reason) Decision {
	return Decision{Decision: inherit.Skip(why)}
}

func ownerNotFound() Decision {
	return Decision{Decision: inherit.Decision{Outcome: inherit.OwnerNotFound, Reason: inherit.OwnerIsNotFound}}
}

// NodeDecision says what happens to a Node: it is skipped, it is no Machine's (NoOwner), or it inherits.
type NodeDecision struct {
	Outcome inherit.Outcome
	// Reason says why a Node stays as it is.
	Reason inherit.Reason
	// Source is what a Node inherits from.
	Source inherit.NodeSource
}

// Inherits reports whether the Node inherits from a Machine or a MachinePool.
func (d NodeDecision) Inherits() bool {
	return d.Outcome == inherit.Inherits
}

// Rule returns the number of the rule by which the Node inherits an entry.
func (d NodeDecision) Rule(e inherit.Entry) int {
	switch e.What {
	case "label":
		return 11
	case "annotation":
		return 12
	}
	return 13
}

func skipNode(why inherit.Reason) NodeDecision {
	return NodeDecision{Outcome: inherit.Skipped, Reason: why}
}

func noMachine() NodeDecision {
	return NodeDecision{Outcome: inherit.NoOwner, Reason: inherit.IsNoMachine}
}

func nodeInherits(from inherit.NodeSource) NodeDecision {
	return NodeDecision{Outcome: inherit.Inherits, Source: from}
}
