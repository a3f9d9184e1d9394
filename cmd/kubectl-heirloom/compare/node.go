// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Node holds the data that only a Node has.
type Node struct {
	*corev1.Node
	// State is the state of the Node, and Next its state after the next write of Heirloom.
	State, Next inherit.NodeState
	// Decided is the decision that is in force, and Would the decision if nothing were skipped.
	Decided, Would owners.NodeDecision
	// Policy is the policy of the comparison.
	Policy inherit.Policy
	// Plan is the plan of the next write, in which taints that evict Pods wait for the Node's turn.
	Plan inherit.NodePlan

	read inherit.Node
	// next is the plan in which nothing waits.
	next inherit.NodePlan
}

// Node compares a Node of a Cluster with the declarations for it.
func (w *World) Node(ctx context.Context, cluster types.NamespacedName, node *corev1.Node) *Object {
	gvk := corev1.SchemeGroupVersion.WithKind("Node")
	node.SetGroupVersionKind(gvk)
	o := &Object{Ref: inherit.Ref{Kind: "Node", Object: node}, GVK: gvk, Cluster: cluster}
	o.Node = &Node{Node: node, State: inherit.OfNode(node), Policy: w.policyFor(node), read: inherit.ReadNode(node, w.Now)}
	o.Err = w.compareNode(ctx, o)
	Sort(o.Entries)
	return o
}

func (w *World) compareNode(ctx context.Context, o *Object) error {
	managers, err := readManagers(o.Object.GetManagedFields())
	if err != nil {
		return err
	}
	o.Has.Layout.Top = inherit.Paths{Metadata: []string{"metadata"}, Taints: []string{"spec", "taints"}}
	top := place{paths: o.Has.Layout.Top, has: contentOfNode(o.Node.State), node: true}
	if err = w.decideNode(ctx, o); err == nil && o.Node.Would.Inherits() {
		top.desired, top.changes = o.Node.inherits()
	}
	o.Entries = top.entries(o, managers)
	listed := o.Node.listed()
	for i := range o.Entries {
		e := &o.Entries[i]
		e.Records = listed(e.Of)
		if why := o.Node.Would.Source.WhyNot(o.Node.Plan.LeftOut, e.Of); e.Status.Wrong() && e.Kind == Taint && why.Waits() {
			e.Reason = string(why)
		}
	}
	return err
}

// decideNode evaluates a Node.
func (w *World) decideNode(ctx context.Context, o *Object) (err error) {
	n, chain, policy := o.Node, w.Store.Chain(o.Cluster), o.Node.Policy
	if n.Decided, err = chain.SourceOf(ctx, n.read, policy); err != nil {
		return err
	}
	n.Would = n.Decided
	if n.Decided.Outcome == inherit.Skipped {
		policy.SkipNothing = true
		if n.Would, err = chain.SourceOf(ctx, n.read, policy); err != nil {
			return err
		}
	}
	if why, other := w.Settings.LeavesOut(o.Cluster.Namespace); other && n.Would.Inherits() {
		n.Decided = owners.NodeDecision{Outcome: inherit.Skipped, Reason: why}
	}
	if n.Decided.Outcome == inherit.Skipped {
		o.Skipped = n.Decided.Reason
	}
	if !n.Would.Inherits() {
		return nil
	}
	o.Sources = chain.NodeSources(ctx, n.Would.Source)
	turn := inherit.Turn{OpensGates: true}
	n.next = policy.PlanNode(n.read, n.Would.Source, turn)
	if policy.PaceEviction { // without a rate, nothing waits for its turn
		turn.Eviction = inherit.Waits
	}
	n.Plan = policy.PlanNode(n.read, n.Would.Source, turn)
	n.Next, o.Problems = n.next.Result, n.next.LeftOut.Problems()
	return nil
}

// before computes Next for a Node whose Machine is in this state until it inherits: the loop writes the Node first.
func (n *Node) before(machine client.Object) {
	if m, ok := machine.(*clusterv1.Machine); ok && n.Would.Inherits() {
		turn := inherit.Turn{OpensGates: true}
		first := n.Policy.PlanNode(n.read, n.Would.Source.AheadOf(m), turn).Result
		n.Next = n.Policy.PlanNode(n.read.Written(first), n.Would.Source, turn).Result
	}
}

// inherits returns the entries that a Node should have, and the changes of the next write. A new Node inherits more than an old Node, which
// had its OnInitialization taints before. So existing entries are compared with the inheritance of a new Node, and missing entries with the
// inheritance of the Node itself. A taint that stands in for a waiting taint is as it should be.
func (n *Node) inherits() (content, map[inherit.Entry]bool) {
	asNew := n.Policy.PlanNode(inherit.ReadNode(&corev1.Node{}, time.Time{}), n.Would.Source, inherit.Turn{}).Result
	desired, changes := contentOfNode(asNew), map[inherit.Entry]bool{}
	becomes, waits := contentOfNode(n.Next), contentOfNode(n.Plan.Result)
	for _, key := range slices.Concat(n.next.Added, n.next.Removed) {
		of := key.Entry
		of.Own = of.What != string(Taint)
		v, stays := becomes[of]
		if now, standsIn := waits[of]; standsIn && !stays {
			desired[of] = now
			continue
		}
		if changes[of] = true; stays {
			desired[of] = v
		}
	}
	return desired, changes
}

// WhyNot says why the Node does not get an entry that its source may declare; it is empty if the Node gets the entry. A label that a
// kubelet may not write counts as dropped until the Node has a record, which shows that another writer has written the Node.
func (n *Node) WhyNot(e inherit.Entry) inherit.Why {
	dropped := n.Plan.LeftOut
	if _, recorded := n.State.Labels[inherit.RecordLabel]; !recorded && e.What == string(Label) {
		dropped = n.Policy.PlanNode(n.read, n.Would.Source, inherit.Turn{Registering: true}).LeftOut
	}
	return n.Would.Source.WhyNot(dropped, e)
}

// records reports whether an entry of a Node is bookkeeping about entries from its Machine.
func (o *Object) records(e inherit.Entry) bool {
	from := o.Node.Would.Source
	_, label := from.Labels[e.Name]
	_, annotation := from.Annotations[e.Name]
	return e.What == string(Label) && !label || e.What == string(Annotation) && !annotation
}

// listed returns a function that names the annotations that record an entry of the Node as its Machine's.
func (n *Node) listed() func(inherit.Entry) []string {
	record := inherit.RecordOf(n.State)
	return func(e inherit.Entry) (names []string) {
		for _, theirs := range []string{"cluster.x-k8s.io/", "heirloom.dev/"} {
			if name := theirs + e.What + "s-from-machine"; n.State.Lists(e.What, name).Has(e.Name) {
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

// policyFor returns the policy for a Node. If the server's settings are unknown, the keys in the tracking annotations of the Node replace
// the operator's regexes.
func (w *World) policyFor(node *corev1.Node) inherit.Policy {
	policy := w.Settings.Policy()
	if policy.ClusterAPITaints == inherit.PropagationUnknown {
		policy.ClusterAPITaints = inherit.PropagationEnabled
	}
	if !w.Settings.Known {
		policy.AdditionalLabels = recorded(node, clusterv1.LabelsFromMachineAnnotation, inherit.LabelsFromMachineAnnotation)
		policy.AdditionalAnnotations = recorded(node, clusterv1.AnnotationsFromMachineAnnotation, inherit.AnnotationsFromMachineAnnotation)
	}
	return policy
}

// recorded returns regexes for exactly the keys in tracking annotations.
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
