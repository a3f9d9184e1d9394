// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// Member is an object of a Cluster's owner chain, with what is decided about it.
type Member struct {
	inherit.Ref
	GVK schema.GroupVersionKind
	// Has is what the object has; of a Node, only Node says it.
	Has     inherit.Object
	Decided ownerchain.Decision
	// Node is set if the object is a Node.
	Node *NodeMember
	// Err says why nothing could be decided.
	Err      error
	Children []*Member
}

// NodeMember is what is decided about a Node.
type NodeMember struct {
	*corev1.Node
	Decided ownerchain.NodeDecision
	// Sources say where what it inherits is declared.
	Sources inherit.Sources
}

// Tree is a Cluster with everything below it.
type Tree struct {
	*Member
	// Strangers are Nodes of the workload cluster that belong to no Machine and no MachinePool.
	Strangers []*Member
	// NodesErr says why the Nodes could not be read. Then there are none in the tree.
	NodesErr error
}

// Nodes returns a reader of the Nodes of a Cluster's workload cluster.
type Nodes func(ctx context.Context, cluster types.NamespacedName) (client.Reader, error)

// Walk evaluates every object of a Cluster, from the top. Nodes may be nil: then the tree ends at the Machines.
func (s *Snapshot) Walk(ctx context.Context, key types.NamespacedName, policy inherit.Policy, nodes Nodes) (*Tree, error) {
	if err := s.Prefetch(ctx); err != nil {
		return nil, err
	}
	cluster := &capi.Cluster{}
	if err := s.Get(ctx, key, cluster); err != nil {
		return nil, fmt.Errorf("getting Cluster %s: %w", key, err)
	}
	w := &walk{Snapshot: s, chain: s.Chain().Within(key), policy: policy, seen: sets.New[types.UID]()}
	tree := &Tree{Member: &Member{Ref: inherit.Ref{Kind: "Cluster", Object: cluster}, GVK: cluster.GroupVersionKind()}}
	if nodes != nil {
		tree.Strangers, tree.NodesErr = w.nodes(ctx, key, nodes)
	}
	var errs []error
	for _, below := range []func(context.Context, *capi.Cluster) ([]*Member, error){
		w.controlPlane, w.machineDeployments, w.machinePools, w.machineSets, w.machines, // those that have no owner come last
	} {
		members, err := below(ctx, cluster)
		tree.Children = append(tree.Children, members...)
		errs = append(errs, err)
	}
	return tree, errors.Join(errs...)
}

// walk is one walk through a Cluster.
type walk struct {
	*Snapshot
	chain  *ownerchain.Chain
	policy inherit.Policy
	// seen are the objects that are in the tree.
	seen sets.Set[types.UID]
	// nodesOf are the Nodes by their Machine or MachinePool.
	nodesOf map[types.UID][]*Member
}

// member evaluates one object.
func member[P client.Object](ctx context.Context, w *walk, kind ownerchain.Kind[P], name string, object P) *Member {
	w.seen.Insert(object.GetUID())
	m := &Member{Ref: inherit.Ref{Kind: name, Object: object}, GVK: object.GetObjectKind().GroupVersionKind()}
	m.Has, m.Err = kind.Content(ctx, w.schemas, object)
	if m.Err == nil {
		m.Decided, m.Err = kind.Evaluate(ctx, w.chain, object, w.policy)
	}
	return m
}

func (w *walk) controlPlane(ctx context.Context, cluster *capi.Cluster) ([]*Member, error) {
	ref := cluster.Spec.ControlPlaneRef
	if ref.Name == "" {
		return nil, nil
	}
	gvk := schema.GroupVersionKind{Group: ref.GroupKind().Group, Kind: ref.GroupKind().Kind}
	mapping, err := w.live.RESTMapper().RESTMapping(gvk.GroupKind())
	if err != nil {
		return nil, fmt.Errorf("finding the kind of control plane %s: %w", ref.Name, err)
	}
	gvk = mapping.GroupVersionKind
	_, cp, err := w.chain.ControlPlane(ctx, cluster.Namespace, &metav1.OwnerReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: ref.Name})
	if err != nil || cp == nil {
		return nil, err
	}
	cp.SetGroupVersionKind(gvk)
	m := member(ctx, w, ownerchain.ControlPlanes(), gvk.Kind, cp)
	m.Children, err = w.machinesOf(ctx, cp)
	return []*Member{m}, err
}

func (w *walk) machineDeployments(ctx context.Context, cluster *capi.Cluster) ([]*Member, error) {
	list := &capi.MachineDeploymentList{}
	if _, err := w.chain.Members(ctx, client.ObjectKeyFromObject(cluster), list); err != nil {
		return nil, err
	}
	var all []*Member
	for i := range list.Items {
		md := &list.Items[i]
		m := member(ctx, w, ownerchain.MachineDeployments(), "MachineDeployment", md)
		sets := &capi.MachineSetList{}
		if _, err := w.chain.Children(ctx, md, sets); err != nil {
			return all, err
		}
		for i := range sets.Items {
			below, err := w.machineSet(ctx, &sets.Items[i])
			if err != nil {
				return all, err
			}
			m.Children = append(m.Children, below)
		}
		all = append(all, m)
	}
	return all, nil
}

func (w *walk) machinePools(ctx context.Context, cluster *capi.Cluster) ([]*Member, error) {
	list := &capi.MachinePoolList{}
	if _, err := w.chain.Members(ctx, client.ObjectKeyFromObject(cluster), list); err != nil {
		return nil, err
	}
	var all []*Member
	for i := range list.Items {
		mp := &list.Items[i]
		m := member(ctx, w, ownerchain.MachinePools(), "MachinePool", mp)
		machines, err := w.machinesOf(ctx, mp)
		if err != nil {
			return all, err
		}
		m.Children = slices.Concat(machines, w.nodesOf[mp.UID])
		all = append(all, m)
	}
	return all, nil
}

// machineSets are those that no MachineDeployment has.
func (w *walk) machineSets(ctx context.Context, cluster *capi.Cluster) ([]*Member, error) {
	list := &capi.MachineSetList{}
	if _, err := w.chain.Members(ctx, client.ObjectKeyFromObject(cluster), list); err != nil {
		return nil, err
	}
	var all []*Member
	for i := range list.Items {
		if w.seen.Has(list.Items[i].UID) {
			continue
		}
		m, err := w.machineSet(ctx, &list.Items[i])
		if err != nil {
			return all, err
		}
		all = append(all, m)
	}
	return all, nil
}

func (w *walk) machineSet(ctx context.Context, ms *capi.MachineSet) (*Member, error) {
	m := member(ctx, w, ownerchain.MachineSets(), "MachineSet", ms)
	var err error
	m.Children, err = w.machinesOf(ctx, ms)
	return m, err
}

// machines are those that nothing in the tree owns.
func (w *walk) machines(ctx context.Context, cluster *capi.Cluster) ([]*Member, error) {
	list := &capi.MachineList{}
	if _, err := w.chain.Members(ctx, client.ObjectKeyFromObject(cluster), list); err != nil {
		return nil, err
	}
	return w.each(ctx, list, func(m *capi.Machine) bool { return !w.seen.Has(m.UID) })
}

func (w *walk) machinesOf(ctx context.Context, owner client.Object) ([]*Member, error) {
	list := &capi.MachineList{}
	if _, err := w.chain.Children(ctx, owner, list); err != nil {
		return nil, err
	}
	return w.each(ctx, list, func(*capi.Machine) bool { return true })
}

func (w *walk) each(ctx context.Context, list *capi.MachineList, wanted func(*capi.Machine) bool) ([]*Member, error) {
	var all []*Member
	for i := range list.Items {
		if m := &list.Items[i]; wanted(m) {
			one := member(ctx, w, ownerchain.Machines(), "Machine", m)
			external, err := w.external(ctx, m)
			if err != nil {
				return all, err
			}
			one.Children = slices.Concat(external, w.nodesOf[m.UID])
			all = append(all, one)
		}
	}
	return all, nil
}

// external are the InfraMachine and the BootstrapConfig of a Machine.
func (w *walk) external(ctx context.Context, m *capi.Machine) ([]*Member, error) {
	var all []*Member
	for _, ref := range ownerchain.ExternalRefs(m) {
		gvk, served, err := w.chain.Served(schema.GroupVersionKind{Group: ref.GroupKind().Group, Kind: ref.GroupKind().Kind})
		if err != nil {
			return nil, err
		}
		if !served {
			continue
		}
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(gvk)
		if err := w.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: ref.Name}, object); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("getting %s %s/%s: %w", gvk.Kind, m.Namespace, ref.Name, err)
		}
		all = append(all, member(ctx, w, ownerchain.ExternalObjects(), gvk.Kind, object))
	}
	return all, nil
}

// nodes evaluates the Nodes of the workload cluster, and returns those that belong to nobody.
func (w *walk) nodes(ctx context.Context, cluster types.NamespacedName, nodes Nodes) ([]*Member, error) {
	w.nodesOf = map[types.UID][]*Member{}
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
		one.Node.Decided, one.Err = w.chain.EvaluateNode(ctx, node, w.policy)
		if !one.Node.Decided.Inherits() {
			owner, err := w.chain.MachineOf(ctx, node) // the Node of a Machine that is skipped
			if err != nil || owner == nil {
				strangers = append(strangers, one)
			} else {
				w.nodesOf[owner.UID] = append(w.nodesOf[owner.UID], one)
			}
			continue
		}
		one.Node.Sources = w.chain.NodeSources(ctx, one.Node.Decided.Source)
		owner := one.Node.Decided.Source.Object.GetUID()
		w.nodesOf[owner] = append(w.nodesOf[owner], one)
	}
	return strangers, nil
}
