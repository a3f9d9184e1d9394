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
	// declaredBy are the objects that declare for this one: its owner, or a topology's Cluster and ClusterClass.
	declaredBy []client.Object
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

func skipNode(why inherit.Reason) NodeDecision {
	return NodeDecision{Outcome: inherit.Skipped, Reason: why}
}

func noMachine() NodeDecision {
	return NodeDecision{Outcome: inherit.NoOwner, Reason: inherit.IsNoMachine}
}

func nodeInherits(from inherit.NodeSource) NodeDecision {
	return NodeDecision{Outcome: inherit.Inherits, Source: from}
}
