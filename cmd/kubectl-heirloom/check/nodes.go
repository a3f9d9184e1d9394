// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

func workloadClusters(_ context.Context, w *world) Result {
	all, err := w.fleet()
	if err != nil {
		return unknown("The Clusters could not be read: %v", err)
	}
	reached := 0
	var unreachable, waiting []string
	for _, c := range all.clusters {
		switch {
		case c.err != nil: // unread names it
		case c.tree.NodesErr == nil:
			reached++
		case c.withoutAPIServer:
			waiting = append(waiting, c.String())
		default:
			unreachable = append(unreachable, fmt.Sprintf("%s: %v", c, c.tree.NodesErr))
		}
	}
	var details []string
	if len(waiting) > 0 {
		details = append(details, "has no API server yet: "+some(waiting))
	}
	details = append(details, first(all.unread())...)
	switch {
	case len(all.clusters) == 0:
		return skipped("There is no Cluster.")
	case len(unreachable) > 0:
		return warning("%s cannot be reached from here.", cli.Count(len(unreachable), "workload cluster")).with(first(unreachable)...).with(details...).
			next("If Heirloom cannot reach them either (its log says \"Connect failed\"), see docs/runbooks/HeirloomWorkloadClusterDisconnected.md.")
	case len(all.unread()) > 0:
		return unknown("%s could be reached, not all Clusters could be read.", cli.Count(reached, "workload cluster")).with(details...)
	}
	return ok("%s could be reached.", cli.Count(reached, "workload cluster")).with(details...)
}

// nodesFound is what was found about the Nodes of all Clusters.
type nodesFound struct {
	healthy, registering int
	strangers            int
	// unmatched and waiting describe the Nodes of a Cluster that belong to no Machine or wait for their turn, lacking and broken single Nodes.
	unmatched, waiting, lacking, broken []string
}

func nodes(_ context.Context, w *world) Result {
	all, err := w.fleet()
	if err != nil {
		return unknown("The Clusters could not be read: %v", err)
	}
	found := &nodesFound{}
	read := 0
	for _, c := range all.clusters {
		if c.tree == nil || c.tree.NodesErr != nil {
			continue
		}
		read++
		found.strangersOf(c)
		var turn []string
		c.each(func(m *snapshot.Member) {
			if m.Node != nil && w.node(found, c, m, all.policy) {
				turn = append(turn, m.Object.GetName())
			}
		})
		if len(turn) > 0 {
			found.waiting = append(found.waiting, fmt.Sprintf("%s: %s a taint that evicts Pods: %s", c, waits(len(turn)), some(turn)))
		}
	}
	if read == 0 && len(all.clusters) > 0 {
		return unknown("No workload cluster could be reached.").with(all.unread()...)
	}
	result := found.result().with(first(all.unread())...)
	if len(all.unread()) > 0 && (result.Status == OK || result.Status == Skipped) {
		result.Status = Unknown
	}
	return result
}

func waits(nodes int) string {
	if nodes == 1 {
		return "1 Node waits for its turn to get"
	}
	return fmt.Sprintf("%d Nodes wait for their turn to get", nodes)
}

// strangersOf adds the Nodes of a Cluster that belong to no Machine.
func (f *nodesFound) strangersOf(c clusterState) {
	var names []string
	for _, stranger := range c.tree.Strangers {
		names = append(names, stranger.Object.GetName())
	}
	if len(names) > 0 {
		f.strangers += len(names)
		f.unmatched = append(f.unmatched, fmt.Sprintf("%s: without a Machine: %s", c, some(names)))
	}
}

// node adds one Node, and reports whether it waits for its turn to get a taint that evicts Pods.
func (w *world) node(f *nodesFound, c clusterState, m *snapshot.Member, policy inherit.Policy) bool {
	if m.Err != nil {
		f.broken = append(f.broken, fmt.Sprintf("%s, Node %s: %v", c, m.Object.GetName(), m.Err))
		return false
	}
	if !m.Node.Decided.Inherits() {
		return false
	}
	lacks, waits := w.lacks(m, policy)
	switch {
	case len(lacks) == 0:
		f.healthy++
	case inherit.Registering(m.Node.Node, w.Now()):
		f.registering++
	default:
		f.lacking = append(f.lacking, fmt.Sprintf("%s, Node %s lacks, or has with another value: %s", c, m.Object.GetName(), some(lacks)))
	}
	return waits
}

// lacks names what a Node should have and has not, apart from what waits for its turn.
func (w *world) lacks(m *snapshot.Member, policy inherit.Policy) (missing []string, waits bool) {
	source, current := m.Node.Decided.Source, inherit.OfNode(m.Node.Node, w.Now())
	evicting := source.Evicting(m.Node.Node, nil, w.Now())
	if !policy.PaceEviction {
		evicting = nil
	}
	result, _ := policy.NodeHolding(source, evicting, current, inherit.Privileged)
	for _, key := range inherit.Brought(current, result) {
		missing = append(missing, key.String())
	}
	return missing, len(evicting) > 0
}

func (f *nodesFound) result() Result {
	var words []string
	if f.healthy > 0 {
		words = append(words, fmt.Sprintf("%s %s", cli.Count(f.healthy, "Node"), verb(f.healthy, "has all that it inherits", "have all that they inherit")))
	}
	if f.registering > 0 {
		words = append(words, fmt.Sprintf("%s %s still registering", cli.Count(f.registering, "Node"), are(f.registering)))
	}
	if len(f.lacking) > 0 {
		words = append(words, fmt.Sprintf("%s %s something that Machines declare", cli.Count(len(f.lacking), "Node"), lack(len(f.lacking))))
	}
	if len(f.broken) > 0 {
		words = append(words, fmt.Sprintf("%s could not be evaluated", cli.Count(len(f.broken), "Node")))
	}
	if f.strangers > 0 {
		words = append(words, fmt.Sprintf("%s %s to no Machine", cli.Count(f.strangers, "Node"), verb(f.strangers, "belongs", "belong")))
	}
	if len(words) == 0 {
		return skipped("There is no Node of a Machine.")
	}
	message := strings.Join(words, ", ") + "."
	details := slices.Concat(first(f.lacking), first(f.broken), first(f.unmatched), first(f.waiting))
	switch {
	case len(f.lacking) > 0:
		return failed("%s", message).with(details...).next("See docs/runbooks/HeirloomNodesUnprotected.md.")
	case len(f.broken) > 0:
		return unknown("%s", message).with(details...)
	case f.strangers > 0:
		return warning("%s", message).with(details...).next("Compare spec.providerID of Node and Machine: docs/workload-clusters.md#troubleshoot.")
	}
	return ok("%s", message).with(details...)
}

func are(n int) string  { return verb(n, "is", "are") }
func lack(n int) string { return verb(n, "lacks", "lack") }

func verb(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}
