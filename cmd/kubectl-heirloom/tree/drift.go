// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/rules"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// ofMember says how an object of Cluster API differs from what is decided about it: by the write that would mend it.
func ofMember(ctx context.Context, i *Item, m *snapshot.Member) {
	i.LeftAlone = string(m.Decided.Reason)
	if m.Decided.Untouched() {
		return
	}
	plan, err := managedfields.New(m.Object, m.Has, m.Decided.Decision, nil)
	if err != nil {
		i.Error = oneLine(err)
		return
	}
	sources := m.Decided.Sources(ctx)
	i.LeftOut = problemsOf(sources, m.Decided.Problems(), plan.LeftOut())
	for _, change := range plan.Changes() {
		entry := change.Entry
		d := Drift{Kind: entry.What, Key: entry.Name, Is: Missing}
		if change.Value == nil {
			d.Is = Stale
		} else {
			d.DeclaredBy = sources.Of(entry).String()
			if has(m.Has, entry) {
				d.Is = Differs
			}
		}
		if !entry.Own {
			d.Kind = "template " + d.Kind
		}
		i.Drift = append(i.Drift, d)
	}
}

// has reports whether an object has an entry, with whatever value.
func has(object inherit.Object, e inherit.Entry) bool {
	content := object.Top
	if !e.Own {
		content = ptr.Deref(object.Template, inherit.Content{})
	}
	if e.What == taintWord {
		content.Annotations = nil // only typed taints count here
	}
	return inherit.Declaration{Content: content}.Declares(e)
}

// node says how a Node differs from what it inherits.
func (b Builder) node(i *Item, node *snapshot.NodeMember) {
	i.LeftAlone = string(node.Decided.Reason)
	if !node.Decided.Inherits() {
		return
	}
	from, current := node.Decided.Source, inherit.OfNode(node.Node, b.Now)
	desired, dropped := b.Policy.Node(from, current, inherit.Privileged)
	i.LeftOut = problemsOf(node.Sources, dropped.Problems())
	if b.Policy.PaceEviction { // without a rate, nothing waits for its turn
		_, dropped = b.Policy.NodeHolding(from, from.Evicting(node.Node, nil, b.Now), current, inherit.Privileged)
	}
	there := entriesOf(current)
	for _, key := range inherit.Brought(current, desired) {
		entry := key.Entry
		d := Drift{Kind: entry.What, Key: entry.Name, Is: Missing, DeclaredBy: node.Sources.Of(entry).String()}
		switch {
		case entry.What == taintWord && rules.WhyNotOnNode(from, dropped, entry) == inherit.DropWaiting:
			d.Is = Waiting
		case there.Has(entry):
			d.Is = Differs
		}
		i.Drift = append(i.Drift, d)
	}
	for _, key := range inherit.Removed(current, desired) {
		entry := key.Entry
		i.Drift = append(i.Drift, Drift{Kind: entry.What, Key: entry.Name, Is: Stale})
	}
}

// entriesOf names all that a Node has.
func entriesOf(state inherit.NodeState) sets.Set[inherit.Entry] {
	all := sets.New[inherit.Entry]()
	for key := range state.Labels {
		all.Insert(inherit.Entry{What: labelWord, Name: key})
	}
	for key := range state.Annotations {
		all.Insert(inherit.Entry{What: annotationWord, Name: key})
	}
	for _, t := range state.Taints {
		all.Insert(inherit.TaintEntry(taint.IDOf(t)))
	}
	return all
}
