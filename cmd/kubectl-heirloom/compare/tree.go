// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

var (
	// ErrGone says that an object to which another object refers does not exist.
	ErrGone = errors.New("it does not exist")
	// errNotServed says that the API server does not serve the kind of an object to which another object refers.
	errNotServed = errors.New("the API server does not serve its kind")
)

// Tree is a Cluster with all objects below it.
type Tree struct {
	*Object
	// Class is the ClusterClass of the Cluster's topology; nil if there is no topology.
	Class *Object
	// Strangers are Nodes of the workload cluster without a Machine and without a MachinePool.
	Strangers []*Object
	// NodesErr says why the Nodes could not be read. The tree then has no Nodes.
	NodesErr error
	// NoNodesYet says that the Cluster is being provisioned and no API server has answered.
	NoNodesYet bool
}

// Each calls a function for every object of the tree, from the top, without the ClusterClass.
func (t *Tree) Each(do func(*Object)) {
	t.Object.Each(do)
	for _, node := range t.Strangers {
		do(node)
	}
}

// Each calls a function for an object and all objects below it.
func (o *Object) Each(do func(*Object)) {
	do(o)
	for _, child := range o.Children {
		child.Each(do)
	}
}

// Tree compares every object of a Cluster, from the top; the Nodes come last. visit, which may be nil, is called for each object after its
// comparison, and may put the changed object into the store. An object that cannot be read or decided does not end the walk.
func (w *World) Tree(ctx context.Context, key types.NamespacedName, visit func(*Object) error) (*Tree, error) {
	if visit == nil {
		visit = func(*Object) error { return nil }
	}
	if err := w.Store.Prefetch(ctx, key.Namespace); err != nil {
		return nil, err
	}
	cluster, err := Cluster(ctx, w.Store, key)
	if err != nil {
		return nil, err
	}
	t := &tree{World: w, cluster: key, chain: w.Store.Chain(key), visit: visit, of: map[types.UID]*Object{}}
	top := &Tree{Object: w.Of(ctx, inherit.Ref{Kind: "Cluster", Object: cluster}, cluster.GroupVersionKind()), Class: t.class(ctx, cluster)}
	if err := t.grow(ctx, top); err != nil {
		return nil, err
	}
	for _, child := range top.Children {
		if err := t.compare(ctx, child); err != nil {
			return nil, err
		}
	}
	if w.Nodes == nil {
		return top, ctx.Err()
	}
	list, nodes := &corev1.NodeList{}, client.Reader(nil)
	if nodes, top.NodesErr = w.Nodes(ctx, key); top.NodesErr == nil {
		top.NodesErr = nodes.List(ctx, list)
	}
	if top.NodesErr != nil && !ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false) {
		top.NodesErr, top.NoNodesYet = nil, true
	}
	for i := range list.Items {
		if err := t.node(ctx, top, &list.Items[i]); err != nil {
			return nil, err
		}
	}
	return top, ctx.Err()
}

// Cluster returns a Cluster.
func Cluster(ctx context.Context, reader client.Reader, key types.NamespacedName) (*clusterv1.Cluster, error) {
	cluster := &clusterv1.Cluster{}
	if err := reader.Get(ctx, key, cluster); apierrors.IsNotFound(err) {
		return nil, cli.NotFound("Cluster", key)
	} else if err != nil {
		return nil, fmt.Errorf("getting Cluster %s: %w", key, err)
	}
	return cluster, nil
}

// Clusters returns all Clusters of a namespace, or of all namespaces if it is "".
func (w *World) Clusters(ctx context.Context, namespace string) ([]types.NamespacedName, error) {
	_ = w.Store.Prefetch(ctx, namespace) // a user may have the right to list some namespaces, and each Cluster has its own error
	return w.Store.Chain(types.NamespacedName{}).Keys(ctx, &clusterv1.ClusterList{}, client.InNamespace(namespace))
}

// atOnce limits how many Clusters are read together. They mostly wait for API servers that do not answer.
const atOnce = 100

// Trees compares the objects of several Clusters. A Cluster that cannot be read is a tree with only a name and an error.
func (w *World) Trees(ctx context.Context, keys []types.NamespacedName) []*Tree {
	all, group := make([]*Tree, len(keys)), errgroup.Group{}
	group.SetLimit(atOnce)
	for i, key := range keys {
		group.Go(func() (err error) {
			if all[i], err = w.Tree(ctx, key, nil); err != nil {
				all[i] = &Tree{Object: unknown(clusterv1.GroupVersion.WithKind("Cluster"), key, err)}
				all[i].Cluster = key
			}
			return nil
		})
	}
	_ = group.Wait() // each tree has its own error
	return all
}

// tree builds a Tree.
type tree struct {
	*World
	cluster types.NamespacedName
	chain   *owners.Chain
	visit   func(*Object) error
	// of holds the objects that may own others, by their UID.
	of map[types.UID]*Object
}

// grow adds all objects of a Cluster below their owners, and objects without an owner below the Cluster.
func (t *tree) grow(ctx context.Context, top *Tree) error {
	cluster, _ := top.Ref.Object.(*clusterv1.Cluster)
	for _, cp := range t.controlPlane(ctx, cluster) {
		t.hang(top, cp)
	}
	for _, kind := range owners.Table {
		if kind.NewList == nil {
			continue
		}
		list := kind.NewList()
		if _, err := t.chain.Members(ctx, client.ObjectKeyFromObject(cluster), list); err != nil {
			return err
		}
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			o := t.known(item.(client.Object)) //nolint:forcetypeassert // all items of these lists are objects
			t.hang(top, o)
			if m, isMachine := item.(*clusterv1.Machine); isMachine {
				t.externals(ctx, o, m)
			}
			return nil
		})
	}
	return nil
}

func (t *tree) hang(top *Tree, o *Object) {
	parent := top.Object
	if ref := metav1.GetControllerOfNoCopy(o.Object); ref != nil && t.of[ref.UID] != nil && ref.UID != o.Object.GetUID() {
		parent = t.of[ref.UID]
	}
	parent.add(o)
	if uid := o.Object.GetUID(); uid != "" {
		t.of[uid] = o
	}
}

func (o *Object) add(child *Object) {
	o.Children, child.Parent = append(o.Children, child), o
}

// class returns the ClusterClass of a Cluster's topology; nil without a topology.
func (t *tree) class(ctx context.Context, cluster *clusterv1.Cluster) *Object {
	key, topology := owners.ClassOf(cluster)
	if !topology {
		return nil
	}
	class, err := t.chain.ClusterClass(ctx, cluster)
	if err == nil && class == nil {
		err = ErrGone
	}
	if err != nil {
		return unknown(clusterv1.GroupVersion.WithKind("ClusterClass"), key, err)
	}
	return t.Of(ctx, inherit.Ref{Kind: "ClusterClass", Object: class}, class.GroupVersionKind())
}

// controlPlane returns the control plane to which a Cluster refers, if any.
func (t *tree) controlPlane(ctx context.Context, cluster *clusterv1.Cluster) []*Object {
	ref := cluster.Spec.ControlPlaneRef
	if ref.Name == "" {
		return nil
	}
	gvk, err := t.served(ref)
	var cp *inherit.ControlPlane
	if err == nil {
		owner := &metav1.OwnerReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: ref.Name}
		_, cp, err = t.chain.ControlPlane(ctx, cluster.Namespace, owner)
	}
	if err == nil && cp == nil {
		err = ErrGone
	}
	if err != nil {
		return []*Object{unknown(gvk, types.NamespacedName{Namespace: cluster.Namespace, Name: ref.Name}, err)}
	}
	return []*Object{t.known(cp)}
}

// externals adds the InfraMachine and the BootstrapConfig of a Machine below it, if they exist. It lists all objects of a kind and
// namespace once. A single object may be readable even if the list is not.
func (t *tree) externals(ctx context.Context, machine *Object, m *clusterv1.Machine) {
	for _, ref := range owners.ExternalRefs(m) {
		key, object := types.NamespacedName{Namespace: m.Namespace, Name: ref.Name}, &metav1.PartialObjectMetadata{}
		gvk, err := t.served(ref)
		if err == nil {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
			_ = t.Store.List(ctx, list, client.InNamespace(key.Namespace), client.Limit(1)) // the store lists all objects
			object.SetGroupVersionKind(gvk)
			err = t.Store.Get(ctx, key, object)
		}
		switch {
		case err == nil:
			machine.add(t.known(object))
		case !apierrors.IsNotFound(err) && !errors.Is(err, errNotServed):
			machine.add(unknown(gvk, key, err))
		}
	}
}

// served returns the kind of a reference, in the version that the API server prefers.
func (t *tree) served(ref clusterv1.ContractVersionedObjectReference) (schema.GroupVersionKind, error) {
	gvk, served, err := t.chain.Served(ref.GroupKind().WithVersion(""))
	if err == nil && !served {
		err = errNotServed
	}
	return gvk, err
}

// known returns an object of the tree that has been read.
func (t *tree) known(object client.Object) *Object {
	gvk := object.GetObjectKind().GroupVersionKind()
	return &Object{Ref: inherit.Ref{Kind: gvk.Kind, Object: object}, GVK: gvk, Cluster: t.cluster}
}

// unknown returns an object with only a name, and the error of its read.
func unknown(gvk schema.GroupVersionKind, key types.NamespacedName, why error) *Object {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	object.SetGroupVersionKind(gvk)
	return &Object{Ref: inherit.Ref{Kind: gvk.Kind, Object: object}, GVK: gvk, Err: why}
}

// compare compares an object, and then the objects below it.
func (t *tree) compare(ctx context.Context, o *Object) error {
	if o.Err == nil {
		t.fill(ctx, o)
	}
	if err := t.visit(o); err != nil {
		return err
	}
	for _, child := range o.Children {
		if err := t.compare(ctx, child); err != nil {
			return err
		}
	}
	return nil
}

// node compares a Node and adds it below its Machine or MachinePool.
func (t *tree) node(ctx context.Context, top *Tree, node *corev1.Node) error {
	o := t.Node(ctx, top.Cluster, node)
	owner, err := t.ownerOf(ctx, o.Node)
	o.Err = errors.Join(o.Err, err)
	if parent := t.of[owner]; parent != nil {
		parent.add(o)
		o.Node.before(parent.Object)
	} else {
		top.Strangers = append(top.Strangers, o)
	}
	return t.visit(o)
}

// ownerOf returns the UID of a Node's Machine or MachinePool, even if Heirloom skips the Node, or "".
func (t *tree) ownerOf(ctx context.Context, node *Node) (types.UID, error) {
	if node.Would.Inherits() {
		return node.Would.Source.Object.GetUID(), nil
	}
	m, err := t.chain.MachineOf(ctx, node.Node)
	switch {
	case err != nil:
		return "", err
	case m != nil:
		return m.UID, nil
	}
	pool, err := t.chain.PoolOf(ctx, node.Node)
	if err != nil || pool == nil {
		return "", err
	}
	return pool.UID, nil
}
