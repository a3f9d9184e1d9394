// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// node explains a Node of the chain's Cluster.
func (x *Explainer) node(ctx context.Context, chain *owners.Chain, node *corev1.Node) (*Explanation, error) {
	policy := x.policyFor(node)
	decided, err := chain.EvaluateNode(ctx, node, policy)
	why := decided.Reason
	if err == nil && decided.Outcome == inherit.Skipped {
		policy.SkipNothing = true
		decided, err = chain.EvaluateNode(ctx, node, policy)
	}
	if err != nil {
		return nil, err
	}
	if decided.Outcome == inherit.NoOwner && x.Key == "" {
		return nil, errNoMachine
	}
	if out, other := x.settings.LeavesOut(decided.Source.Cluster.Namespace); other && decided.Inherits() {
		why = out
	}
	var notes []string
	if why != "" {
		if decided.Inherits() {
			why = "of " + inherit.Reason(decided.Source.String()) + ": " + why
		}
		notes = append(notes, leftAlone(why))
	}
	current := inherit.OfNode(node, time.Now())
	top := place{
		paths: inherit.Paths{Metadata: []string{"metadata"}, Taints: []string{"spec", "taints"}}, has: contentOfNode(current),
		records: listedIn(current), atomicTaints: true,
	}
	name := "Node " + node.Name
	if !decided.Inherits() {
		e, err := explanation(node, name, notes, top)
		if err != nil {
			return nil, err
		}
		return x.addAbsencesOfNode(ctx, e, chain, node, x.Key)
	}
	sources := chain.NodeSources(ctx, decided.Source)
	problems := top.inheritNode(policy, decided, current, sources)
	notes = append(notes, unread(sources)...)
	notes = append(notes, leftOut(sources, problems)...)
	notes = append(notes, whereToEdit(inherit.Ref{}, sources)...)
	e, err := explanation(node, name, notes, top)
	if err != nil {
		return nil, err
	}
	e.Cluster, e.owners = decided.Source.Cluster.String(), ownersIn(sources, inherit.Ref{Kind: "Node", Object: node})
	return x.addAbsencesOfNode(ctx, x.guessed(e), chain, node, x.Key)
}

// inheritNode adds what a Node inherits to its place. A new Node inherits more than an old one, which had its Initialize taints
// before; so what is there is compared with a new Node, and what is not with the Node itself.
func (p *place) inheritNode(policy inherit.Policy, decided owners.NodeDecision, current inherit.NodeState, sources inherit.Sources) error {
	from := decided.Source
	asNew, _ := policy.Node(from, inherit.NodeState{}, inherit.Privileged) // the next line has the problems
	now, dropped := policy.Node(from, current, inherit.Privileged)
	p.desired, p.changes = contentOfNode(asNew), map[inherit.Entry]bool{}
	next := contentOfNode(now)
	for _, key := range slices.Concat(inherit.Brought(current, now), inherit.Removed(current, now)) {
		changed := key.Entry
		changed.Own = changed.What != string(Taint)
		p.changes[changed] = true
	}
	for i, v := range next {
		if p.changes[p.named(i)] {
			p.desired[i] = v
		}
	}
	trace := follow(inherit.Ref{Kind: "Node", Object: &corev1.Node{}}, sources, func(inherit.Entry) bool { return false })
	p.origin = func(e inherit.Entry) origin {
		_, label := from.Labels[e.Name]
		_, annotation := from.Annotations[e.Name]
		if e.What == string(Label) && !label || e.What == string(Annotation) && !annotation {
			return origin{record: "records what came from " + from.String()}
		}
		return trace(e)
	}
	return dropped.Problems()
}

// listedIn returns a function that names the annotations that record an entry of a Node as its Machine's.
func listedIn(node inherit.NodeState) func(inherit.Entry) []string {
	record := inherit.RecordOf(node)
	return func(e inherit.Entry) (names []string) {
		for _, theirs := range []string{"cluster.x-k8s.io/", "heirloom.dev/"} {
			if name := theirs + e.What + "s-from-machine"; node.Lists(e.What, name).Has(e.Name) {
				names = append(names, name)
			}
		}
		recorded := e.What == string(Label) && slices.Contains(record.Labels, e.Name) ||
			e.What == string(Taint) && slices.ContainsFunc(record.Taints, func(t corev1.Taint) bool { return taint.IDOf(t).String() == e.Name })
		if recorded {
			names = append(names, inherit.RecordAnnotation)
		}
		return names
	}
}

// policyFor returns the options of the rules for a Node. What an operator's own regexes select is read from what was recorded on the
// Node if the server's settings are not known.
func (x *Explainer) policyFor(node *corev1.Node) inherit.Policy {
	policy := x.settings.Policy()
	if policy.ClusterAPITaints == inherit.PropagationUnknown {
		policy.ClusterAPITaints = inherit.PropagationEnabled
	}
	if !x.settings.Known {
		policy.AdditionalLabels = recorded(node, clusterv1.LabelsFromMachineAnnotation, inherit.LabelsFromMachineAnnotation)
		policy.AdditionalAnnotations = recorded(node, clusterv1.AnnotationsFromMachineAnnotation, inherit.AnnotationsFromMachineAnnotation)
	}
	return policy
}

// recorded returns regexes for exactly the keys that tracking annotations list.
func recorded(node *corev1.Node, annotations ...string) []*regexp.Regexp {
	var exact []*regexp.Regexp
	for _, name := range annotations {
		for key := range strings.SplitSeq(node.Annotations[name], ",") {
			if key = strings.TrimSpace(key); key != "" {
				exact = append(exact, regexp.MustCompile("^"+regexp.QuoteMeta(key)+"$"))
			}
		}
	}
	return exact
}
