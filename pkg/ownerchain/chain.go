// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Chain looks along the owner chain.
type Chain struct {
	// Reader is a cache, or one of the readers of this package around it.
	client.Reader
	// Mapper tells which version of a provider's kind to read. An owner reference may name another version, and one informer for each
	// kind is enough.
	Mapper meta.RESTMapper
	// ManagementCluster names the Cluster whose Nodes live in the same API server as the Cluster API objects. It is nil if there is
	// none. Its answer is empty while that is not known: then no Node of that API server inherits.
	ManagementCluster func() types.NamespacedName
	// Layout tells where a kind of control plane has what it can inherit. If it is nil, control planes count as they are.
	Layout func(ctx context.Context, gvk schema.GroupVersionKind) (inherit.Layout, error)
	// Remembered keeps what follows from owners; nil keeps nothing. Remembering sets it.
	Remembered *Remembered

	// within is the argument of Within.
	within types.NamespacedName
}

// with returns the chain with another reader.
func (c *Chain) with(reader client.Reader) *Chain {
	other := *c
	other.Reader = reader
	return &other
}

// CallingNobody returns a chain that does not ask the API server for owners that are not cached. If its reader is Fresh, it stays so.
func (c *Chain) CallingNobody() *Chain {
	switch reader := c.Reader.(type) {
	case Fresh:
		return c
	case noting:
		return c.with(noting{Reader: cachedBehind(reader.Reader), notes: reader.notes})
	}
	return c.with(cachedBehind(c.Reader))
}

// Within returns a chain for the Nodes of that Cluster's own API server. The chain finds all Machines and MachinePools where they
// were.
func (c *Chain) Within(cluster types.NamespacedName) *Chain {
	within := *c
	within.within = cluster
	return &within
}

// cluster returns the Cluster whose Nodes are asked about: the one that the chain is within, or the management cluster's own. It is
// empty if that is not known.
func (c *Chain) cluster() types.NamespacedName {
	if c.within.Name != "" || c.ManagementCluster == nil {
		return c.within
	}
	return c.ManagementCluster()
}

// IsManagementCluster reports whether the Nodes of that Cluster live in the same API server as the Cluster API objects.
func (c *Chain) IsManagementCluster(cluster types.NamespacedName) bool {
	return c.ManagementCluster != nil && cluster.Name != "" && c.ManagementCluster() == cluster
}

// Always returns a function that always names the same Cluster.
func Always(cluster types.NamespacedName) func() types.NamespacedName {
	return func() types.NamespacedName { return cluster }
}

// MachineDeployment returns the MachineDeployment that controls the MachineSet, or nil where there is none.
func (c *Chain) MachineDeployment(ctx context.Context, ms *clusterv1.MachineSet) (*clusterv1.MachineDeployment, error) {
	md := &clusterv1.MachineDeployment{}
	found, err := c.owner(ctx, ms, "MachineDeployment", md)
	if err != nil || !found || md.Spec.ClusterName != ms.Spec.ClusterName {
		return nil, err
	}
	return md, nil
}

// MachineSet returns the MachineSet that controls the Machine, or nil where there is none.
func (c *Chain) MachineSet(ctx context.Context, m *clusterv1.Machine) (*clusterv1.MachineSet, error) {
	ms := &clusterv1.MachineSet{}
	found, err := c.owner(ctx, m, "MachineSet", ms)
	if err != nil || !found || ms.Spec.ClusterName != m.Spec.ClusterName {
		return nil, err
	}
	return ms, nil
}

// Cluster returns the Cluster of that name from the cache, or nil where it is not there.
func (c *Chain) Cluster(ctx context.Context, namespace, name string) (*clusterv1.Cluster, error) {
	if name == "" {
		return nil, nil
	}
	cluster := &clusterv1.Cluster{}
	found, err := c.find(ctx, "Cluster", types.NamespacedName{Namespace: namespace, Name: name}, "", cluster)
	if !found || err != nil {
		return nil, err
	}
	return cluster, nil
}

// owner reads the controller of child into owner, if it is of this kind of Cluster API, and reports whether it exists.
func (c *Chain) owner(ctx context.Context, child metav1.Object, kind string, owner client.Object) (bool, error) {
	ref := metav1.GetControllerOfNoCopy(child)
	if ref == nil || ref.Kind != kind || groupOf(ref) != clusterv1.GroupVersion.Group {
		return false, nil
	}
	return c.fetch(ctx, child.GetNamespace(), ref, owner)
}

// fetch reads the object that ref names, and reports whether it exists. An object with the same name and another UID is not the
// owner.
func (c *Chain) fetch(ctx context.Context, namespace string, ref *metav1.OwnerReference, owner client.Object) (bool, error) {
	return c.find(ctx, "owner", types.NamespacedName{Namespace: namespace, Name: ref.Name}, ref.UID, owner, ofUID(ref.UID))
}

// find reads an object, and reports whether it exists with this UID, which may be empty. Errors call it what.
func (c *Chain) find(
	ctx context.Context, what string, key types.NamespacedName, uid types.UID, into client.Object, options ...client.GetOption,
) (bool, error) {
	err := c.Get(ctx, key, into, options...)
	if isNot(uid, into, err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting %s %s: %w", what, key, err)
	}
	return true, nil
}

func groupOf(ref *metav1.OwnerReference) string {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return ""
	}
	return gv.Group
}
