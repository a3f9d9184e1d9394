// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// Member is an object of a Cluster's owner chain, with what is decided about it.
type Member struct {
	inherit.Ref
	GVK schema.GroupVersionKind
	// Has is what the object has; of a Node, only Node says it.
	Has     inherit.Object
	Decided owners.Decision
	// Node is set if the object is a Node.
	Node *NodeMember
	// Err says why nothing could be decided. The object may have only its name then.
	Err      error
	Children []*Member
}

// NodeMember is what is decided about a Node.
type NodeMember struct {
	*corev1.Node
	Decided owners.NodeDecision
	// Sources say where what it inherits is declared.
	Sources inherit.Sources
}

// Tree is a Cluster with everything below it.
type Tree struct {
	*Member
	// Class is the ClusterClass of the Cluster's topology; nil if there is no topology.
	Class *Member
	// Strangers are Nodes of the workload cluster that belong to no Machine and no MachinePool.
	Strangers []*Member
	// NodesErr says why the Nodes could not be read. Then there are none in the tree.
	NodesErr error
}

// Nodes returns a reader of the Nodes of a Cluster's workload cluster.
type Nodes func(ctx context.Context, cluster types.NamespacedName) (client.Reader, error)

// Walk evaluates every object of a Cluster, from the top, as a server with these settings does; policy may skip less than theirs.
// Nodes may be nil: then the tree ends at the Machines. An object that cannot be read or evaluated does not end the walk.
func (s *Snapshot) Walk(
	ctx context.Context, key types.NamespacedName, server settings.Settings, policy inherit.Policy, nodes Nodes,
) (*Tree, error) {
	if err := s.prefetch(ctx, key.Namespace); err != nil {
		return nil, err
	}
	cluster := &clusterv1.Cluster{}
	if err := s.Get(ctx, key, cluster); err != nil {
		return nil, fmt.Errorf("getting Cluster %s: %w", key, err)
	}
	chain := s.ChainOf(key)
	w := &walk{Snapshot: s, chain: chain, policy: policy, server: server, seen: sets.New[types.UID](), nodesOf: map[types.UID][]*Member{}}
	if why, other := server.LeavesOut(key.Namespace); other && !policy.SkipNothing {
		w.leftOut = why
	}
	tree := &Tree{Member: &Member{Ref: inherit.Ref{Kind: "Cluster", Object: cluster}, GVK: cluster.GroupVersionKind()}}
	tree.Class = w.class(ctx, cluster)
	if nodes != nil {
		tree.Strangers, tree.NodesErr = w.nodes(ctx, key, nodes)
	}
	tree.Children = w.controlPlane(ctx, cluster)
	for _, below := range []func(context.Context, *clusterv1.Cluster) ([]*Member, error){
		w.machineDeployments, w.machinePools, w.machineSets, w.machines, // those that have no owner come last
	} {
		members, err := below(ctx, cluster)
		if err != nil {
			return nil, err
		}
		tree.Children = append(tree.Children, members...)
	}
	return tree, ctx.Err()
}

// ChainOf returns the owner chain of one Cluster, which lists only its namespace.
func (s *Snapshot) ChainOf(cluster types.NamespacedName) *owners.Chain {
	chain := s.Chain().Within(cluster)
	chain.Cache = within{s, cluster.Namespace}
	return chain
}

// within reads the objects of one namespace where a list asks for those of all of them: all that belongs to a Cluster is in its
// namespace.
type within struct {
	*Snapshot
	namespace string
}

// List implements client.Reader.
func (r within) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return r.Snapshot.List(ctx, list, append([]client.ListOption{client.InNamespace(r.namespace)}, options...)...)
}

// walk is one walk through a Cluster.
type walk struct {
	*Snapshot
	chain  *owners.Chain
	policy inherit.Policy
	server settings.Settings
	// leftOut says why the server touches nothing of the Cluster; empty if it does.
	leftOut inherit.Reason
	// seen are the objects that are in the tree.
	seen sets.Set[types.UID]
	// nodesOf are the Nodes by their Machine or MachinePool.
	nodesOf map[types.UID][]*Member
}

// member evaluates one object.
func member[P client.Object](ctx context.Context, w *walk, kind owners.Kind, name string, object P) *Member {
	w.seen.Insert(object.GetUID())
	m := &Member{Ref: inherit.Ref{Kind: name, Object: object}, GVK: object.GetObjectKind().GroupVersionKind()}
	m.Has, m.Err = kind.Content(ctx, w.chain, object)
	switch {
	case m.Err != nil:
	case w.leftOut != "":
		m.Decided.Decision = inherit.Skip(w.leftOut)
	default:
		m.Decided, m.Err = kind.Evaluate(ctx, w.chain, object, w.policy)
	}
	return m
}

// unknown is an object of which no more is known than its name, and why.
func unknown(gvk schema.GroupVersionKind, key types.NamespacedName, why error) *Member {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	object.SetGroupVersionKind(gvk)
	return &Member{Ref: inherit.Ref{Kind: gvk.Kind, Object: object}, GVK: gvk, Err: why}
}
