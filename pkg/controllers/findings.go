// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
	// unprotected are Nodes without a declared Always taint, unlabeled new Nodes without labels that their kubelets may not set, ignored
	// Nodes whose Machine, MachinePool or Cluster is opted out, waiting Nodes that wait for a taint that evicts Pods, pendingNodes Nodes whose
	// write is only observed.
	unprotected, unlabeled, ignored, waiting, pendingNodes *nodeSet
}

func newFindings(m *metrics.Metrics) findings {
	return findings{
		records: newByNode[string](nil), unprotected: newByNode[bool](m.NodesUnprotected), unlabeled: newByNode[bool](nil),
		ignored: newByNode[bool](m.NodesIgnored), waiting: newByNode[bool](nil),
		pendingNodes: newByNode[bool](func(cluster types.NamespacedName, nodes int) { m.PendingWrites(cluster, "Node", nodes) }),
	}
}

// track remembers the Node's record, and whether the Node lacks a taint or a label or is ignored.
func (r *nodes) track(v *visit, p owners.NodePlan) {
	if !p.Inherits() {
		r.forget(v.NodeRequest, p.Reason.OptedOut())
		return
	}
	if record := inherit.ValidRecord(p.Node.NodeState); record != "" {
		r.records.set(v.NodeRequest, record)
	}
	r.ignored.set(v.NodeRequest, false)
	r.unprotected.set(v.NodeRequest, len(p.Unprotected) > 0)
	unlabeled := p.Unlabeled && (r.unlabeled.get(v.NodeRequest) || p.Node.Registering())
	if was := r.unlabeled.set(v.NodeRequest, unlabeled); was && !unlabeled {
		r.Metrics.NodeLabeled(v.now.Sub(p.Node.Object.CreationTimestamp.Time))
	}
}

// forget drops the findings about a Node that inherits nothing for now, but not its record; ignored says that the Node is
// opted out.
func (r *nodes) forget(req NodeRequest, ignored bool) {
	for _, set := range []*nodeSet{r.unprotected, r.unlabeled, r.waiting} {
		set.set(req, false)
	}
	r.ignored.set(req, ignored)
	_, total := r.waiting.counts(req.Cluster)
	r.Metrics.NoExecuteWaiting(total)
}

// known returns the Nodes of a Cluster about which the loop remembers anything.
func (f findings) known(cluster types.NamespacedName) []NodeRequest {
	all := f.records.in(cluster)
	for _, set := range []*nodeSet{f.unprotected, f.unlabeled, f.ignored, f.waiting, f.pendingNodes} {
		all = append(all, set.in(cluster)...)
	}
	return all
}

// drop drops all findings about a Node that is gone.
func (r *nodes) drop(req NodeRequest) {
	r.forget(req, false)
	r.records.set(req, "")
	r.pendingNodes.set(req, false)
}

// forgetAll drops the findings about all Nodes of a Cluster that is gone, because no later reconcile does.
func (r *nodes) forgetAll(cluster types.NamespacedName) {
	for _, req := range r.known(cluster) {
		r.drop(req)
	}
	r.clusters.forget(cluster)
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
		r.recordEvent(ctx, v, p, reasonNoExecuteTaintsSoftened, "Inherit",
			"Node "+v.Name+" has its NoExecute taints with effect NoSchedule until its Pods have left")
	case r.NoExecuteBudgets && p.Evicts() && !waits.IsZero():
		r.recordEvent(ctx, v, p, reasonNoExecuteTaintsApplied, "Inherit",
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
	waits := len(p.Held) > 0
	waited := r.waiting.set(v.NodeRequest, waits)
	left, total := r.waiting.counts(v.Cluster)
	r.Metrics.NoExecuteWaiting(total)
	switch {
	case waits && !waited && v.limitedBy != "":
		r.recordEvent(ctx, v, p, reasonNoExecuteTaintsRollingOut, "Inherit", "NoExecute taints evict Pods, so Nodes wait for their turn "+
			"(--no-execute-rate); limit reached in "+v.limitedBy)
	case waited && p.Evicts() && left == 0:
		r.recordEvent(ctx, v, p, reasonNoExecuteTaintsRolledOut, "Inherit", "All Nodes of the Cluster that waited for NoExecute taints have them")
	}
}

// recordEvent records an Event about taints that evict Pods, on the object that declares them, because operators edit it. This object may
// be a ClusterClass of another namespace, whose readers must not learn the names in this Cluster: then the Event is on the Machine.
func (r *nodes) recordEvent(ctx context.Context, v *visit, p owners.NodePlan, reason, action, note string) {
	about := p.Source.Object
	declared := r.Chain.NodeSources(ctx, p.Source).Of(inherit.TaintEntry(taint.IDOf(p.Evicting[0]))).Object
	if declared != nil && declared.GetNamespace() == v.Cluster.Namespace {
		about = declared
	}
	r.Recorder.Eventf(about, nil, corev1.EventTypeNormal, reason, action, "%s", note)
}

// byNode holds a value for each Node, and counts the Nodes of each Cluster that have a value. The zero value of V is no value. It is safe
// for concurrent use.
type byNode[V comparable] struct {
	// report is called with the number of a Cluster's Nodes that have a value whenever a value changes, under the lock. It may be nil.
	report func(cluster types.NamespacedName, nodes int)

	mu    sync.Mutex
	of    map[types.NamespacedName]map[string]V
	total int
}

// nodeSet is a set of Nodes.
type nodeSet = byNode[bool]

func newByNode[V comparable](report func(cluster types.NamespacedName, nodes int)) *byNode[V] {
	return &byNode[V]{report: report, of: map[types.NamespacedName]map[string]V{}}
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
		b.report(req.Cluster, len(nodes))
	}
	return was
}

func (b *byNode[V]) get(req NodeRequest) V {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[req.Cluster][req.Name]
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
