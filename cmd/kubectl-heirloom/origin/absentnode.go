// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// absencesOfNode returns what is declared for a Node and what it has not got. The chain is that of its Cluster.
func absencesOfNode(ctx context.Context, q question, node *corev1.Node, now time.Time) ([]Absence, error) {
	policy := q.policy
	decided, err := q.chain.EvaluateNode(ctx, node, policy)
	if err != nil {
		return nil, err
	}
	f := &nodeFinder{node: node, decided: decided, would: decided, state: inherit.OfNode(node)}
	f.ref = inherit.Ref{Kind: "Node", Object: node}
	if decided.Outcome == inherit.Skipped {
		policy.SkipNothing = true
		kept := node.DeepCopy()
		kept.DeletionTimestamp = nil
		if f.would, err = q.chain.EvaluateNode(ctx, kept, policy); err != nil {
			return nil, err
		}
	}
	if !f.would.Inherits() {
		why := f.would.Reason
		return q.unknown(verdict{why: why.Dropped(), at: f.ref, of: string(why)}), nil
	}
	f.skipped = f.decided.Reason.Dropped()
	if why, other := q.settings.LeavesOut(f.would.Source.Cluster.Namespace); other {
		f.decided = owners.NodeDecision{Outcome: inherit.Skipped, Reason: why}
		f.skipped = otherNamespace
	}
	sources := q.chain.NodeSources(ctx, f.would.Source)
	holders, err := q.holders(ctx, sources, nil)
	if err != nil {
		return nil, err
	}
	if policy.PaceEviction {
		f.held = f.would.Source.Evicting(node, nil, now)
	}
	f.finder = finder{question: q, sources: sources, holders: holders}
	f.declared(f.missing)
	f.overridden(func(d declared) bool {
		now, there := f.has(d.Entry)
		return there && now == d.value
	})
	has := inherit.Content{Labels: f.state.Labels, Annotations: f.state.Annotations}
	for _, t := range f.state.Taints {
		has.Taints = append(has.Taints, clusterv1.MachineTaint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	return f.answer(has), nil
}

// nodeFinder collects what is missing on a Node.
type nodeFinder struct {
	finder
	ref            inherit.Ref
	node           *corev1.Node
	state          inherit.NodeState
	decided, would owners.NodeDecision
	// skipped is the reason of what is decided, in one word.
	skipped inherit.Dropped
	// held are taints that have to wait for their turn.
	held []taint.ID
}

// missing says why a Node has not got an entry.
func (f *nodeFinder) missing(d declared) (verdict, bool) {
	if !f.applies(d.Entry) {
		return verdict{}, false // fields end at the Machine
	}
	if now, there := f.has(d.Entry); there && (now == d.value || d.metadata) {
		return verdict{}, false
	}
	why := f.policy.WhyNotNode(f.would.Source, f.state, f.writer(d.Entry), d.Entry)
	switch {
	case d.metadata:
		return f.missingMetadata(d, why)
	case why == inherit.DropElsewhere:
		return f.above(d), true
	case f.value(d.Entry) != d.value && why != inherit.DropUnproven:
		return f.above(d), true
	case why == inherit.DropReserved || why == inherit.DropInvalid:
		_, problems := f.policy.Node(f.would.Source, f.state, inherit.Privileged)
		return verdict{why: why, at: f.ref, of: problemOf(problems, d.Entry)}, true
	case why != "":
		return verdict{why: why, at: f.ref}, true
	}
	return f.coming(d), true
}

// coming says why a Node has not got yet what the rules bring.
func (f *nodeFinder) coming(d declared) verdict {
	switch {
	case f.decided.Outcome == inherit.Skipped:
		return verdict{why: f.skipped, at: f.leftAlone(), of: string(f.decided.Reason)}
	case d.What == string(Taint) && f.would.Source.Waits(d.Name, f.held, f.state):
		return verdict{why: waiting, at: f.ref}
	}
	return verdict{why: notYet, at: f.ref}
}

// leftAlone is the object that a skipped Node is left alone for: its own deletion counts, and what its Machine says.
func (f *nodeFinder) leftAlone() inherit.Ref {
	if inherit.Deleting(f.node) {
		return f.ref
	}
	return f.would.Source.Ref
}

// above says at which object above the Node an entry has stopped.
func (f *nodeFinder) above(d declared) verdict {
	if v, stuck := f.stuck(d); stuck {
		return v
	}
	return f.coming(d)
}

// missingMetadata is missing for an entry of an owner's own metadata.
func (f *nodeFinder) missingMetadata(d declared, why inherit.Dropped) (verdict, bool) {
	if why != inherit.DropElsewhere {
		return verdict{}, false // the Machine has the key from elsewhere
	}
	if own := inherit.WhyNotOwn(d.Name); own != "" {
		return verdict{why: own, at: d.by.Ref}, true
	}
	return verdict{why: inherit.DropElsewhere, at: d.by.Ref}, true
}

// writer is the last writer of the Node as far as it can be seen: a privileged one leaves a record.
func (f *nodeFinder) writer(e inherit.Entry) inherit.Writer {
	_, recorded := f.state.Labels[inherit.RecordLabel]
	return inherit.Writer(!recorded && e.What == string(Label))
}

// has returns what the Node has.
func (f *nodeFinder) has(e inherit.Entry) (string, bool) {
	switch e.What {
	case string(Label):
		value, ok := f.state.Labels[e.Name]
		return value, ok
	case string(Annotation):
		value, ok := f.state.Annotations[e.Name]
		return value, ok
	}
	for _, t := range f.state.Taints {
		if taint.IDOf(t).String() == e.Name {
			return t.Value, true
		}
	}
	return "", false
}

// value is what the Node's source has or declares.
func (f *nodeFinder) value(e inherit.Entry) string {
	switch e.What {
	case string(Label):
		return f.would.Source.Labels[e.Name]
	case string(Annotation):
		return f.would.Source.Annotations[e.Name]
	}
	value, _ := f.would.Source.Taint(e.Name)
	return value
}
