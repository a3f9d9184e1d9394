// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// nodes evaluates the Nodes of a Cluster's workload cluster. They inherit what their Machines will carry.
func (e *evaluation) nodes(ctx context.Context, chain *owners.Chain, cluster types.NamespacedName) error {
	if e.Nodes == nil {
		return nil
	}
	list := &corev1.NodeList{}
	reader, err := e.Nodes(ctx, cluster)
	if err == nil {
		err = reader.List(ctx, list)
	}
	if err != nil {
		e.note("The Nodes of Cluster %s are not shown, because its API server does not answer: %s", cluster, cli.OneLine(err))
		return nil
	}
	var changed []changedNode
	for i := range list.Items {
		one, err := e.node(ctx, chain, cluster, &list.Items[i])
		if err != nil {
			return err
		}
		if one != nil {
			changed = append(changed, *one)
		}
	}
	return e.consequences(ctx, chain, cluster, reader, changed)
}

// changedNode is a Node that changes.
type changedNode struct {
	*corev1.Node
	source inherit.NodeSource
	// taints are those that are new to the Node; paced are the identities of those for which Nodes wait their turn.
	taints []corev1.Taint
	paced  []taint.ID
}

// node evaluates a Node, as the loop does. It returns nil if nothing changes.
func (e *evaluation) node(ctx context.Context, chain *owners.Chain, cluster types.NamespacedName, node *corev1.Node) (*changedNode, error) {
	decided, err := chain.EvaluateNode(ctx, node, e.policy)
	if err != nil {
		e.note("Node %s of Cluster %s is not shown, because its owners cannot be read: %s", node.Name, cluster, cli.OneLine(err))
		return nil, nil
	}
	if !decided.Inherits() {
		return nil, nil
	}
	current := inherit.OfNode(node, time.Now())
	meanwhile, err := e.meanwhile(decided.Source, current)
	if err != nil {
		return nil, err
	}
	result, dropped := e.policy.Node(decided.Source, meanwhile, inherit.Privileged)
	sources := chain.NodeSources(ctx, decided.Source)
	if problems := dropped.Problems(); problems != nil {
		e.leftOut(fmt.Sprintf("Node %s of Cluster %s", node.Name, cluster), sources.Located(problems))
	}
	if result.Equal(current) {
		return nil, nil
	}
	after := node.DeepCopy()
	after.Labels, after.Annotations, after.Spec.Taints = result.Labels, result.Annotations, result.Taints
	live, err := unstructuredNode(node)
	if err != nil {
		return nil, err
	}
	o := newObject(live, cluster)
	if o.Merged, err = unstructuredNode(after); err != nil {
		return nil, err
	}
	o.Set = e.sets[decided.Source.Object.GetUID()]
	o.Changes = changesOfNode(current, result, sources)
	e.all = append(e.all, o)
	return &changedNode{
		Node: node, source: decided.Source, taints: added(current.Taints, result.Taints),
		paced: decided.Source.Evicting(node, nil, time.Now()),
	}, nil
}

// meanwhile returns what becomes of a Node before its Machine has inherited: the loop writes Nodes first.
func (e *evaluation) meanwhile(source inherit.NodeSource, current inherit.NodeState) (inherit.NodeState, error) {
	m, ok := source.Object.(*clusterv1.Machine)
	if !ok {
		return current, nil
	}
	for of, objects := range e.stored { // only kinds of which something changes are there
		stored := objects[client.ObjectKeyFromObject(m)]
		if of.Kind != "Machine" || stored == nil {
			continue
		}
		before := &clusterv1.Machine{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, before); err != nil {
			return current, fmt.Errorf("reading Machine %s/%s: %w", m.Namespace, m.Name, err)
		}
		current, _ = e.policy.Node(source.AheadOf(before), current, inherit.Privileged) // the second step reports problems
	}
	return current, nil
}

// changesOfNode lists what a Node gets and loses. What only changes in the annotations that track it is one entry.
func changesOfNode(current, result inherit.NodeState, sources inherit.Sources) []Change {
	var all []Change
	values := map[string]map[string]string{"label": result.Labels, "annotation": result.Annotations}
	for _, key := range inherit.Brought(current, result) {
		change := changeOf(key, sources)
		if value, ok := values[key.What][key.Name]; ok {
			change.Value = value
		}
		all = append(all, change)
	}
	for _, key := range inherit.Removed(current, result) {
		change := changeOf(key, sources)
		change.Value, change.Source, change.Removed = nil, "", true
		all = append(all, change)
	}
	if len(all) == 0 {
		all = append(all, Change{Place: "metadata.annotations", Value: "only the record of what came from the Machine"})
	}
	return all
}

func changeOf(key inherit.NodeKey, sources inherit.Sources) Change {
	change := Change{Place: "metadata." + key.What + "s", Key: key.Name, Source: sources.Of(key.Entry).String()}
	if key.What == "taint" {
		change.Place, change.Key, change.Value = "spec.taints", key.Name, key.Text()
	}
	return change
}

// added returns the taints that only the second list has, or has with another value.
func added(before, after []corev1.Taint) []corev1.Taint {
	var all []corev1.Taint
	for _, t := range after {
		if at := taint.Find(before, taint.IDOf(t)); at < 0 || before[at].Value != t.Value {
			all = append(all, t)
		}
	}
	return all
}

func unstructuredNode(node *corev1.Node) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(node)
	if err != nil {
		return nil, fmt.Errorf("reading Node %s: %w", node.Name, err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return object, nil
}
