// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// nodes evaluates the Nodes of the workload cluster, and returns those that belong to nobody.
func (w *walk) nodes(ctx context.Context, cluster types.NamespacedName, nodes Nodes) ([]*Member, error) {
	reader, err := nodes(ctx, cluster)
	if err != nil {
		return nil, err
	}
	list := &corev1.NodeList{}
	if err := reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing the Nodes of Cluster %s: %w", cluster, err)
	}
	var strangers []*Member
	for i := range list.Items {
		node := &list.Items[i]
		gvk := corev1.SchemeGroupVersion.WithKind("Node")
		node.SetGroupVersionKind(gvk)
		one := &Member{Ref: inherit.Ref{Kind: "Node", Object: node}, GVK: gvk, Node: &NodeMember{Node: node}}
		if w.leftOut != "" {
			one.Node.Decided = owners.NodeDecision{Outcome: inherit.Skipped, Reason: w.leftOut}
		} else {
			one.Node.Decided, one.Err = w.chain.EvaluateNode(ctx, node, w.policy)
		}
		owner, err := w.ownerOf(ctx, one.Node)
		if one.Err == nil {
			one.Err = err
		}
		if owner == "" {
			strangers = append(strangers, one)
		} else {
			w.nodesOf[owner] = append(w.nodesOf[owner], one)
		}
	}
	return strangers, nil
}

// ownerOf returns the UID of a Node's Machine or MachinePool, even if the Node is skipped, or "".
func (w *walk) ownerOf(ctx context.Context, node *NodeMember) (types.UID, error) {
	if node.Decided.Inherits() {
		node.Sources = w.chain.NodeSources(ctx, node.Decided.Source)
		return node.Decided.Source.Object.GetUID(), nil
	}
	m, err := w.chain.MachineOf(ctx, node.Node)
	switch {
	case err != nil:
		return "", err
	case m != nil:
		return m.UID, nil
	}
	pool, err := w.chain.PoolOf(ctx, node.Node)
	if err != nil || pool == nil {
		return "", err
	}
	return pool.UID, nil
}

// Once returns Nodes that are read once for each Cluster, however often they are asked for.
func (n Nodes) Once() Nodes {
	type answer struct {
		client.Reader
		err error
	}
	known := map[types.NamespacedName]answer{}
	return func(ctx context.Context, cluster types.NamespacedName) (client.Reader, error) {
		if before, ok := known[cluster]; ok {
			return before.Reader, before.err
		}
		reader, err := n(ctx, cluster)
		if workload, ok := reader.(client.Client); ok && err == nil {
			reader = New(workload, nil)
		}
		known[cluster] = answer{reader, err}
		return reader, err
	}
}
