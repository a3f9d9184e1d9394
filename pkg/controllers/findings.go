// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// findings are the memory of the loop about Nodes.
type findings struct {
	// records are the last valid records (inherit.Record) that the loop saw on Nodes. With them, a kubelet that makes its record invalid
	// does not keep entries that its Machine loses.
	records *byNode[string]
	// unprotected are Nodes without a declared Always taint, unlabeled new Nodes without labels that their kubelets may not set, skipped
	// Nodes of IgnoreLabel, pendingNodes Nodes whose write is only observed.
	unprotected, unlabeled, skipped, pendingNodes *nodeSet
	rollouts                                      *rollouts
	// gates are the closed start-up gates of Nodes.
	gates *byNode[closedGates]
}

func newFindings(m *metrics.Metrics) findings {
	return findings{
		records: newByNode[string](nil), unprotected: newByNode(counted(m.NodesUnprotected)), unlabeled: newByNode[bool](nil),
		skipped: newByNode(counted(m.NodesSkipped)), gates: newByNode(countGates(m)), rollouts: newRollouts(m),
		pendingNodes: newByNode(counted(func(cluster types.NamespacedName, nodes int) { m.PendingWrites(cluster, "Node", nodes) })),
	}
}

// track remembers the Node's record, and whether the Node lacks a taint or a label or is skipped.
func (r *nodes) track(v *visit, p owners.NodePlan) {
	if !p.Inherits() {
		r.forget(v.NodeRequest, p.Reason.ByLabel())
		return
	}
	if record := inherit.ValidRecord(p.Node.NodeState); record != "" {
		r.records.set(v.NodeRequest, record)
	}
	r.skipped.set(v.NodeRequest, false)
	r.rollouts.track(v.NodeRequest, len(p.Held) > 0, p.Node.Record.Turn())
	r.unprotected.set(v.NodeRequest, len(p.Unprotected) > 0)
	unlabeled := p.Unlabeled && (r.unlabeled.get(v.NodeRequest) || p.Node.Registering())
	if was := r.unlabeled.set(v.NodeRequest, unlabeled); was && !unlabeled {
		r.Metrics.NodeLabeled(v.now.Sub(p.Node.Object.CreationTimestamp.Time))
	}
}

// forget drops the findings about a Node that inherits nothing for now, but not its record; skipped says that the Node is
// skipped because of IgnoreLabel.
func (r *nodes) forget(req NodeRequest, skipped bool) {
	for _, set := range []*nodeSet{r.unprotected, r.unlabeled} {
		set.set(req, false)
	}
	r.gates.set(req, closedGates{})
	r.skipped.set(req, skipped)
	r.rollouts.track(req, false, time.Time{})
}

// known returns the Nodes of a Cluster about which the loop remembers anything.
func (f findings) known(cluster types.NamespacedName) []NodeRequest {
	all := f.records.in(cluster)
	for _, set := range []*nodeSet{f.unprotected, f.unlabeled, f.skipped, f.pendingNodes, f.rollouts.read} {
		all = append(all, set.in(cluster)...)
	}
	return append(all, f.gates.in(cluster)...)
}

// drop drops all findings about a Node that is gone.
func (r *nodes) drop(req NodeRequest) {
	r.forget(req, false)
	r.records.set(req, "")
	r.pendingNodes.set(req, false)
	r.rollouts.read.set(req, false)
}

// forgetAll drops the findings about all Nodes of a Cluster that is gone, because no later reconcile does.
func (r *nodes) forgetAll(cluster types.NamespacedName) {
	for _, req := range r.known(cluster) {
		r.drop(req)
	}
	r.clusters.forget(cluster)
	r.rollouts.forget(cluster)
}

// recordWrite counts the changes of a write to a Node, and reports repaired drift, opened start-up gates, a turn and broken records.
func (r *nodes) recordWrite(ctx context.Context, v *visit, p owners.NodePlan) {
	defer func() {
		p.NodePlan = p.Written()
		r.track(v, p)
	}()
	for _, key := range p.Added {
		r.Metrics.Key(metrics.ByResync, "Node", key.What, metrics.KeyInjected)
	}
	for _, key := range p.Removed {
		r.Metrics.Key(metrics.ByResync, "Node", key.What, metrics.KeyRemoved)
	}
	about := func(kind, reason, action, note string, args ...any) {
		r.Recorder.Eventf(p.Source.Object, nil, kind, reason, action, note, args...)
	}
	if len(p.Kept) > 0 {
		names := make([]string, 0, len(p.Kept))
		for _, key := range p.Kept {
			r.Metrics.Drift(metrics.ByResync, "Node", key.What)
			names = append(names, fmt.Sprint(key))
		}
		about(corev1.EventTypeNormal, reasonDriftRepaired, "Inherit", "Restored inherited entries of Node %s: %s", v.Name, strings.Join(names, ", "))
	}
	if len(p.Opened) > 0 {
		names := make([]string, 0, len(p.Opened))
		for _, id := range p.Opened {
			names = append(names, id.String())
		}
		about(corev1.EventTypeNormal, reasonStartupGateOpened, "Open", "Start-up gates of Node %s are open: removed %s", v.Name, strings.Join(names, ", "))
	}
	if broken := inherit.BrokenTracking(p.Node.NodeState); broken != nil {
		about(corev1.EventTypeWarning, reasonTrackingAnnotationBroken, "Inherit",
			"Repaired the record of taints from the Machine on Node %s, without its broken parts: %v", v.Name, broken)
	}
	switch waits := v.node.Record.Softened; {
	case v.turn.Eviction == inherit.AsksPods && len(p.Held) > 0 && waits.IsZero():
		r.recordEvent(ctx, v, p, corev1.EventTypeNormal, reasonNoExecuteTaintsSoftened, "Inherit",
			"Node "+v.Name+" has its NoExecute taints with effect NoSchedule until its Pods have left")
	case v.settings.Budgets && p.Evicts() && !waits.IsZero():
		r.recordEvent(ctx, v, p, corev1.EventTypeNormal, reasonNoExecuteTaintsApplied, "Inherit",
			"Node "+v.Name+" has its NoExecute taints: its Pods have left, or --no-execute-deadline is over")
	}
}

// report reports the entries that the Node cannot inherit, and the progress of a roll-out of taints that evict Pods.
func (r *nodes) report(ctx context.Context, v *visit, p owners.NodePlan) {
	if !p.Inherits() {
		return
	}
	if problems := p.LeftOut.Problems(); problems != nil {
		r.leftOut(p.Source.Object, r.Chain.NodeSources(ctx, p.Source).Located(problems))
	}
	r.reportGates(ctx, v, p)
	switch {
	case len(p.Held) > 0 && !v.waited && v.limitedBy != "":
		r.recordEvent(ctx, v, p, corev1.EventTypeNormal, reasonNoExecuteTaintsRollingOut, "Inherit",
			"NoExecute taints evict Pods, so Nodes wait for their turn; limit reached in "+v.limitedBy)
	case v.waited && p.Evicts() && r.rollouts.waits(v.Cluster) == 0:
		r.recordEvent(ctx, v, p, corev1.EventTypeNormal, reasonNoExecuteTaintsRolledOut, "Inherit",
			"All Nodes of Cluster "+v.Cluster.String()+" that waited for NoExecute taints have them")
	}
}

// recordEvent records an Event about taints that evict Pods, on the object that declares them.
func (r *nodes) recordEvent(ctx context.Context, v *visit, p owners.NodePlan, kind, reason, action, note string) {
	about := client.Object(p.Source.Object)
	all := slices.Concat(p.Evicting, v.node.Record.Taints)
	if i := slices.IndexFunc(all, evicts); i >= 0 {
		about = r.declaring(ctx, v, p, taint.IDOf(all[i]))
	}
	r.Recorder.Eventf(about, nil, kind, reason, action, "%s", note)
}

// declaring returns the object that declares a taint, because operators edit it. This object may be a ClusterClass of another namespace,
// whose readers must not learn the names in this Cluster: then it returns the Machine.
func (r *nodes) declaring(ctx context.Context, v *visit, p owners.NodePlan, id taint.ID) client.Object {
	declared := r.Chain.NodeSources(ctx, p.Source).Of(inherit.TaintEntry(id)).Object
	if declared != nil && declared.GetNamespace() == v.Cluster.Namespace {
		return declared
	}
	return p.Source.Object
}

// byNode holds a value for each Node, and counts the Nodes of each Cluster that have a value. The zero value of V is no value. It is safe
// for concurrent use.
type byNode[V comparable] struct {
	// report is called with the values of a Cluster's Nodes whenever a value changes, under the lock. It may be nil.
	report func(cluster types.NamespacedName, nodes map[string]V)

	mu    sync.Mutex
	of    map[types.NamespacedName]map[string]V
	total int
}

// nodeSet is a set of Nodes.
type nodeSet = byNode[bool]

func newByNode[V comparable](report func(cluster types.NamespacedName, nodes map[string]V)) *byNode[V] {
	return &byNode[V]{report: report, of: map[types.NamespacedName]map[string]V{}}
}

// counted returns a report of the number of Nodes in a set.
func counted(report func(cluster types.NamespacedName, nodes int)) func(types.NamespacedName, map[string]bool) {
	return func(cluster types.NamespacedName, nodes map[string]bool) { report(cluster, len(nodes)) }
}

// set sets the value of a Node, and returns the previous value.
func (b *byNode[V]) set(req NodeRequest, value V) (was V) {
	b.mu.Lock()
	defer b.mu.Unlock()
	nodes := b.of[req.Cluster]
	if was = nodes[req.Name]; was == value {
		return was
	}
	if nodes == nil {
		nodes = map[string]V{}
		b.of[req.Cluster] = nodes
	}
	b.total -= len(nodes)
	if nodes[req.Name] = value; value == *new(V) {
		delete(nodes, req.Name)
	}
	b.total += len(nodes)
	if len(nodes) == 0 {
		delete(b.of, req.Cluster)
	}
	if b.report != nil {
		b.report(req.Cluster, nodes)
	}
	return was
}

func (b *byNode[V]) get(req NodeRequest) V {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[req.Cluster][req.Name]
}

// values returns the values of the Nodes of a Cluster.
func (b *byNode[V]) values(cluster types.NamespacedName) []V {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.of[cluster]))
}

// in returns the Nodes of a Cluster that have a value.
func (b *byNode[V]) in(cluster types.NamespacedName) []NodeRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	var nodes []NodeRequest
	for name := range b.of[cluster] {
		nodes = append(nodes, NodeRequest{Cluster: cluster, Name: name})
	}
	return nodes
}

// counts returns the number of Nodes with a value in a Cluster, and in all Clusters.
func (b *byNode[V]) counts(cluster types.NamespacedName) (nodes, total int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.of[cluster]), b.total
}
