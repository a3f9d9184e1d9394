// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/uses"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// LabelChange is a label that Nodes lose, or whose value changes, with the objects of the workload cluster that depend on it.
type LabelChange struct {
	Cluster string `json:"cluster"`
	Key     string `json:"key"`
	Value   string `json:"value"`
	// After is the new value; nil if the Nodes lose the label.
	After *string  `json:"after,omitempty"`
	Nodes []string `json:"nodes"`
	// DependantsUnknown says that not all kinds could be read.
	DependantsUnknown bool             `json:"dependantsUnknown,omitempty"`
	Dependants        []uses.Dependant `json:"dependants,omitempty"`
}

// labels finds the objects that depend on labels that the changed Nodes lose, or whose values change.
func (e *evaluation) labels(ctx context.Context, cluster types.NamespacedName) {
	var lost []*LabelChange
	for _, o := range e.changed {
		for key, value := range o.Node.State.Labels {
			change := &LabelChange{Cluster: cluster.String(), Key: key, Value: value}
			if after, stays := o.Node.Next.Labels[key]; stays {
				change.After = &after
			}
			if key == inherit.RecordLabel || change.After != nil && *change.After == value {
				continue
			}
			at := slices.IndexFunc(lost, func(known *LabelChange) bool { return known.String() == change.String() })
			if at < 0 {
				at, lost = len(lost), append(lost, change)
			}
			lost[at].Nodes = append(lost[at].Nodes, o.Node.Name)
		}
	}
	if len(lost) == 0 {
		return
	}
	slices.SortFunc(lost, func(a, b *LabelChange) int { return strings.Compare(a.String(), b.String()) })
	e.Labels = append(e.Labels, lost...)
	var changes []uses.Change
	for _, change := range lost {
		changes = append(changes, uses.Change{Key: change.Key, Before: &change.Value, After: change.After})
	}
	found := make([][]uses.Dependant, len(lost))
	from, err := e.Nodes(ctx, cluster)
	if err == nil {
		found, err = uses.Find(ctx, from, cluster, changes...)
	}
	if err != nil {
		e.note(cluster.String(), "Not all objects of Cluster %s that use labels could be read: "+cli.OneLine(err))
	}
	for i, change := range lost {
		change.Dependants, change.DependantsUnknown = found[i], err != nil
	}
}

// String names the change.
func (c *LabelChange) String() string {
	if c.After != nil {
		return fmt.Sprintf("Label %s=%s becomes %q", c.Key, c.Value, *c.After)
	}
	return fmt.Sprintf("Label %s=%s is removed", c.Key, c.Value)
}

// lines describes the effects of the change for people.
func (c *LabelChange) lines() []string {
	lines := []string{fmt.Sprintf("%s on %s of Cluster %s: %s", c, cli.Count(len(c.Nodes), "Node"), c.Cluster, cli.Some(c.Nodes, 3))}
	for i := range c.Dependants {
		lines = append(lines, "  used: "+c.Dependants[i].String())
	}
	if len(c.Dependants) == 0 && !c.DependantsUnknown {
		lines = append(lines, "  no known object uses it")
	}
	return lines
}

// Used reports whether an object depends on a label that Nodes lose, or whose value changes. It is unknown if anything that could tell could
// not be read.
func (r *Result) Used() (used, unknown bool) {
	unknown = r.Unread
	for _, change := range r.Labels {
		used, unknown = used || len(change.Dependants) > 0, unknown || change.DependantsUnknown
	}
	return used, unknown
}
