// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/rules"
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
	f := &nodeFinder{decided: decided, would: decided, state: inherit.OfNode(node, now)}
	f.ref = inherit.Ref{Kind: "Node", Object: node}
	if decided.Outcome == inherit.Skipped {
		policy.SkipNothing = true
		if f.would, err = q.chain.EvaluateNode(ctx, node, policy); err != nil {
			return nil, err
		}
	}
	if !f.would.Inherits() {
		why := f.would.Reason
		return q.unknown(verdict{why: rules.WhySkipped(why), at: f.ref, of: string(why)}), nil
	}
	f.skipped = rules.WhySkipped(f.decided.Reason)
	if why, other := q.settings.LeavesOut(f.would.Source.Cluster.Namespace); other {
		f.decided = owners.NodeDecision{Outcome: inherit.Skipped, Reason: why}
		f.skipped = otherNamespace
	}
	sources := q.chain.NodeSources(ctx, f.would.Source)
	holders, err := q.holders(ctx, sources, nil)
	if err != nil {
		return nil, err
	}
	var held []taint.ID
	if policy.PaceEviction {
		held = f.would.Source.Evicting(node, nil, now)
	}
	f.dropped = map[inherit.Writer]inherit.Drops{}
	for _, writer := range []inherit.Writer{inherit.Kubelet, inherit.Privileged} {
		_, f.dropped[writer] = policy.NodeHolding(f.would.Source, held, f.state, writer)
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
	state          inherit.NodeState
	decided, would owners.NodeDecision
	// skipped is the reason of what is decided, in one word.
	skipped inherit.Why
	// dropped is what the rules leave out, in a write by the kubelet and by others.
	dropped map[inherit.Writer]inherit.Drops
}

// missing says why a Node has not got an entry.
func (f *nodeFinder) missing(d declared) (verdict, bool) {
	if !f.applies(d.Entry) {
		return verdict{}, false // fields end at the Machine
	}
	if now, there := f.has(d.Entry); there && (now == d.value || d.metadata) {
		return verdict{}, false
	}
	dropped := f.dropped[f.writer(d.Entry)]
	why := rules.WhyNotOnNode(f.would.Source, dropped, d.Entry)
	switch {
	case d.metadata:
		return f.missingMetadata(d, why)
	case why == inherit.DropElsewhere:
		return f.above(d, why), true
	case f.value(d.Entry) != d.value && why != inherit.DropUnproven:
		return f.above(d, why), true
	case why == inherit.DropReserved || why == inherit.DropInvalid:
		return verdict{why: why, at: f.ref, of: problemOf(dropped.Problems(), d.Entry)}, true
	case why != "" && why != inherit.DropWaiting:
		return verdict{why: why, at: f.ref}, true
	}
	return f.coming(why), true
}

// coming says why a Node has not got yet what the rules bring.
func (f *nodeFinder) coming(why inherit.Why) verdict {
	switch {
	case f.decided.Outcome == inherit.Skipped:
		return verdict{why: f.skipped, at: f.would.Source.Ref, of: string(f.decided.Reason)}
	case why == inherit.DropWaiting:
		return verdict{why: why, at: f.ref}
	}
	return verdict{why: notYet, at: f.ref}
}

// above says at which object above the Node an entry has stopped.
func (f *nodeFinder) above(d declared, why inherit.Why) verdict {
	if v, stuck := f.stuck(d); stuck {
		return v
	}
	return f.coming(why)
}

// missingMetadata is missing for an entry of an owner's own metadata.
func (f *nodeFinder) missingMetadata(d declared, why inherit.Why) (verdict, bool) {
	if why != inherit.DropElsewhere {
		return verdict{}, false // the Machine has the key from elsewhere
	}
	if own := inherit.OfItself(d.Name); own != "" {
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
	value, _ := f.would.Source.Declares().Value(e)
	return value
}
