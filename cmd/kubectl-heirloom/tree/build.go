// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Builder makes trees of Clusters.
type Builder struct {
	// Policy is that of the walk.
	Policy inherit.Policy
	// Now is the time at which Nodes count as new or in use.
	Now time.Time
}

// New returns a forest without trees.
func New(view View) *Forest {
	return &Forest{TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Tree"}, Trees: []*Item{}, View: view}
}

// Add adds the tree of a Cluster. In all, nothing was skipped: it tells what is declared for objects that are paused or opted out.
// It may be the same walk.
func (f *Forest) Add(ctx context.Context, b Builder, walked, all *snapshot.Tree) {
	e := b.entering(ctx, all)
	cluster := b.item(ctx, walked.Member, e)
	for _, node := range walked.Strangers {
		cluster.Children = append(cluster.Children, b.item(ctx, node, e))
	}
	top := cluster
	if walked.Class != nil {
		top = b.item(ctx, walked.Class, e)
		top.Children = []*Item{cluster}
	}
	f.Trees = append(f.Trees, top)
	f.Notes = append(f.Notes, notes(walked)...)
}

// item makes an item of a member and of all below it.
func (b Builder) item(ctx context.Context, m *snapshot.Member, e entering) *Item {
	i := &Item{
		APIVersion: m.GVK.GroupVersion().String(), Kind: m.Kind, Namespace: m.Object.GetNamespace(), Name: m.Object.GetName(), Enters: e.at(m.Ref),
	}
	switch {
	case m.Err != nil:
		i.Error = oneLine(m.Err)
	case m.Node != nil:
		b.node(i, m.Node)
	case m.Kind != clusterKind && m.Kind != classKind:
		ofMember(ctx, i, m)
	}
	i.State = stateOf(i, m)
	for _, child := range m.Children {
		below := b.item(ctx, child, e)
		below.External = m.Kind == machineKind && child.Node == nil
		i.Children = append(i.Children, below)
	}
	return i
}

// The kinds that are not like the others.
const (
	clusterKind    = "Cluster"
	classKind      = "ClusterClass"
	machineKind    = "Machine"
	machineSetKind = "MachineSet"
	nodeKind       = "Node"
)

func stateOf(i *Item, m *snapshot.Member) State {
	switch {
	case i.Error != "":
		return Unknown
	case m.Node != nil && m.Node.Decided.Outcome == inherit.NoOwner:
		return Stranger
	case len(i.Drift) > 0:
		return Drifted
	case i.LeftAlone != "" && !topmost(m):
		return LeftAlone
	case i.Kind == clusterKind, i.Kind == classKind:
		return Declares
	}
	return OK
}

// topmost reports whether an object is left alone because there is nothing above it, which is as it should be.
func topmost(m *snapshot.Member) bool {
	return m.Node == nil && (m.Decided.Reason == inherit.NothingDeclares || m.Decided.Reason == inherit.NotOfMachine)
}

// notes says what a tree cannot show, and what to do about it.
func notes(t *snapshot.Tree) []string {
	var all []string
	if t.NodesErr != nil {
		all = append(all, fmt.Sprintf("The Nodes of %s cannot be read, so its tree ends at the Machines: %s.", t.Ref, oneLine(t.NodesErr)))
	}
	var strangers []string
	for _, node := range t.Strangers {
		if node.Node.Decided.Outcome == inherit.NoOwner && node.Err == nil {
			strangers = append(strangers, node.Object.GetName())
		}
	}
	if len(strangers) > 0 {
		all = append(all, fmt.Sprintf("%s of %s inherits nothing, because no Machine matches it, or several do: compare spec.providerID of the "+
			"Node with that of the Machines (kubectl get machines -n %s -o wide), and delete a Node whose machine is gone.",
			several(nodeKind, strangers), t.Ref, t.Object.GetNamespace()))
	}
	return all
}

// several names objects of a kind: "Node a", or "2 Nodes (a, b)".
func several(kind string, names []string) string {
	if len(names) == 1 {
		return kind + " " + names[0]
	}
	return fmt.Sprintf("%d %ss (%s)", len(names), kind, few(names))
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

func problemsOf(sources inherit.Sources, problems ...error) []string {
	var all []string
	for _, problem := range inherit.Problems(sources.Located(errors.Join(problems...))) {
		all = append(all, oneLine(problem))
	}
	return all
}
