// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// The fields of the indexes. For Machines and MachinePools, the values of nodeRefField, providerIDField and nodeNameField contain the
// name of the Cluster (see in).
const (
	ownerField      = "ownerUID"     // UID of the controller
	clusterField    = "clusterName"  // name of the Cluster
	classField      = "clusterClass" // ClusterClass of a Cluster's topology, as "<namespace>/<name>"
	nodeRefField    = "nodeRef"
	providerIDField = "providerID"
	nodeNameField   = "nodeName" // names and addresses of a Node
)

// indexed returns the values of an object in each index of its kind, by field.
func indexed(object client.Object) map[string][]string {
	switch o := object.(type) {
	case *clusterv1.Cluster:
		class, _ := ClassOf(o)
		return map[string][]string{classField: {class.String()}}
	case *corev1.Node:
		return map[string][]string{providerIDField: one(o.Spec.ProviderID), nodeNameField: inherit.NodeNames(o)}
	case *clusterv1.ClusterClass:
		return nil
	}
	child := childOf(object)
	values := map[string][]string{clusterField: one(child.clusterName)}
	if kind, ok := child.rules.(searched); ok {
		kind.index(values)
	}
	return values
}

// Indexes returns the indexes that a cache of the kind needs for a Chain, by field. NodesOf uses the indexes of Nodes.
func Indexes(kind client.Object) map[string]client.IndexerFunc {
	indexes := map[string]client.IndexerFunc{}
	for field := range indexed(kind) {
		indexes[field] = func(object client.Object) []string { return indexed(object)[field] }
	}
	return indexes
}

// IndexValues returns the values of an object in the index of a field. With it, a reader without indexes can answer the lists of a Chain.
func IndexValues(object client.Object, field string) []string { return indexed(object)[field] }

// Prepare adds the informers and indexes of all kinds that a Chain reads to the cache, except for kinds of providers. Call it before the
// cache starts, on every replica: otherwise the first request would start the informer and wait for it. Without ownNodes, no Cluster has
// its Nodes in the management cluster, and the cache does not hold Nodes.
func Prepare(ctx context.Context, c cache.Cache, ownNodes bool) error {
	kinds := []client.Object{&clusterv1.Cluster{}, &clusterv1.ClusterClass{}}
	for _, kind := range Table {
		if kind.Name != "" { // kinds of providers are known only once a Cluster or a Machine refers to them
			kinds = append(kinds, kind.New())
		}
	}
	if ownNodes {
		kinds = append(kinds, &corev1.Node{})
	}
	for _, kind := range kinds {
		if _, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("preparing the cache of %T: %w", kind, err)
		}
		for field, values := range Indexes(kind) {
			if err := c.IndexField(ctx, kind, field, values); err != nil {
				return fmt.Errorf("indexing %T by %s: %w", kind, field, err)
			}
		}
	}
	return nil
}

func ownerUID(object metav1.Object) []string {
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
		return []string{string(ref.UID)}
	}
	return nil
}

func one(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// in returns index values that contain the name of the Cluster: Machines of other Clusters with the same names or addresses must not slow
// down the look-ups for its Nodes.
func in(cluster string, values []string) (all []string) {
	for _, value := range values {
		all = append(all, cluster+"/"+value)
	}
	return all
}

// list lists objects from the cache without copying them, so they must not be changed. With copies, all Machines would be in memory
// several times when the loop starts.
func (c *Chain) list(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.Cache.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...) //nolint:wrapcheck // the caller knows the object
}

// Keys returns the names of the objects that match the options. list determines their kind; its items must not be changed.
func (c *Chain) Keys(ctx context.Context, list client.ObjectList, options ...client.ListOption) ([]types.NamespacedName, error) {
	if err := c.list(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing %T: %w", list, err)
	}
	var all []types.NamespacedName
	err := meta.EachListItem(list, func(object runtime.Object) error {
		if o, ok := object.(client.Object); ok {
			all = append(all, client.ObjectKeyFromObject(o))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading %T: %w", list, err)
	}
	return all, nil
}

// Children returns the names of the objects of the list's kind that owner controls.
func (c *Chain) Children(ctx context.Context, owner client.Object, list client.ObjectList) ([]types.NamespacedName, error) {
	return c.Keys(ctx, list, controlledBy(owner)...)
}

func controlledBy(owner client.Object) []client.ListOption {
	return []client.ListOption{client.InNamespace(owner.GetNamespace()), client.MatchingFields{ownerField: string(owner.GetUID())}}
}

// Members returns the names of the objects of the list's kind that belong to a Cluster.
func (c *Chain) Members(ctx context.Context, cluster types.NamespacedName, list client.ObjectList) ([]types.NamespacedName, error) {
	return c.Keys(ctx, list, membersOf(cluster)...)
}

func membersOf(cluster types.NamespacedName) []client.ListOption {
	return []client.ListOption{client.InNamespace(cluster.Namespace), client.MatchingFields{clusterField: cluster.Name}}
}

// ClustersOf returns the names of the Clusters whose topology uses the ClusterClass.
func (c *Chain) ClustersOf(ctx context.Context, class client.Object) ([]types.NamespacedName, error) {
	return c.Keys(ctx, &clusterv1.ClusterList{}, client.MatchingFields{classField: client.ObjectKeyFromObject(class).String()})
}

// MachinesBelow returns the Machines that owner controls, for a MachineDeployment the Machines of its MachineSets. They must not be
// changed.
func (c *Chain) MachinesBelow(ctx context.Context, owner client.Object) ([]clusterv1.Machine, error) {
	above := []client.Object{owner}
	if _, ok := owner.(*clusterv1.MachineDeployment); ok {
		list := &clusterv1.MachineSetList{}
		if err := c.list(ctx, list, controlledBy(owner)...); err != nil {
			return nil, fmt.Errorf("listing the MachineSets of %s: %w", owner.GetName(), err)
		}
		above = nil
		for i := range list.Items {
			above = append(above, &list.Items[i])
		}
	}
	var machines []clusterv1.Machine
	for _, set := range above {
		list := &clusterv1.MachineList{}
		if err := c.list(ctx, list, controlledBy(set)...); err != nil {
			return nil, fmt.Errorf("listing the Machines of %s: %w", set.GetName(), err)
		}
		machines = append(machines, list.Items...)
	}
	return machines, nil
}

// mostLookUps is the maximum number of values that NodesOf looks up one by one. An informer waits meanwhile, and users who may write a
// MachinePool can list any number of providerIDs in it.
const mostLookUps = 1000

// NodesOf returns the names of the Nodes in a cache that may belong to a MachinePool, a Machine, or the Machines below another object.
// MachineOf and PoolOf decide about each Node. With more than mostLookUps values, NodesOf returns all Nodes.
func (c *Chain) NodesOf(ctx context.Context, nodes client.Reader, object client.Object) (all []types.NamespacedName, err error) {
	byField, machines := map[string][]string{}, []clusterv1.Machine(nil)
	switch o := object.(type) {
	case *clusterv1.MachinePool:
		byField[providerIDField] = o.Spec.ProviderIDList
	case *clusterv1.Machine:
		machines = []clusterv1.Machine{*o}
	default:
		if machines, err = c.MachinesBelow(ctx, object); err != nil {
			return nil, err
		}
	}
	for _, m := range machines {
		byField[providerIDField] = append(byField[providerIDField], one(m.Spec.ProviderID)...)
		byField[nodeNameField] = append(append(byField[nodeNameField], one(m.Status.NodeRef.Name)...), inherit.MachineNames(&m)...)
	}
	if len(byField[providerIDField])+len(byField[nodeNameField]) > mostLookUps {
		return (&Chain{Cache: nodes}).Keys(ctx, &corev1.NodeList{})
	}
	for field, values := range byField {
		for _, value := range values {
			found, err := (&Chain{Cache: nodes}).Keys(ctx, &corev1.NodeList{}, client.MatchingFields{field: value})
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}
