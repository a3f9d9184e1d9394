// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// errGone says of an object that another one names that it is not there.
var errGone = errors.New("it does not exist")

// errNotServed says of an object that another one names that there cannot be such an object.
var errNotServed = errors.New("the API server does not serve its kind")

// class is the ClusterClass of a Cluster's topology.
func (w *walk) class(ctx context.Context, cluster *clusterv1.Cluster) *Member {
	key, topology := owners.ClassOf(cluster)
	if !topology {
		return nil
	}
	class, err := w.chain.ClusterClass(ctx, cluster)
	if err == nil && class == nil {
		err = errGone
	}
	if err != nil {
		return unknown(clusterv1.GroupVersion.WithKind("ClusterClass"), key, err)
	}
	return &Member{Ref: inherit.Ref{Kind: "ClusterClass", Object: class}, GVK: class.GroupVersionKind()}
}

func (w *walk) controlPlane(ctx context.Context, cluster *clusterv1.Cluster) []*Member {
	ref := cluster.Spec.ControlPlaneRef
	if ref.Name == "" {
		return nil
	}
	gvk, served, err := w.chain.Served(ref.GroupKind().WithVersion(""))
	if err == nil && !served {
		err = errNotServed
	}
	var cp *inherit.ControlPlane
	if err == nil {
		_, cp, err = w.chain.ControlPlane(ctx, cluster.Namespace, &metav1.OwnerReference{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: ref.Name,
		})
	}
	if err == nil && cp == nil {
		err = errGone
	}
	if err != nil {
		return []*Member{unknown(gvk, types.NamespacedName{Namespace: cluster.Namespace, Name: ref.Name}, err)}
	}
	cp.SetGroupVersionKind(gvk)
	m := member(ctx, w, owners.ControlPlanes, gvk.Kind, cp)
	machines, err := w.machinesOf(ctx, cp)
	m.Children, m.Err = machines, errors.Join(m.Err, err)
	return []*Member{m}
}

func (w *walk) machineDeployments(ctx context.Context, cluster *clusterv1.Cluster) ([]*Member, error) {
	list := &clusterv1.MachineDeploymentList{}
	if _, err := w.chain.Members(ctx, client.ObjectKeyFromObject(cluster), list); err != nil {
		return nil, err
	}
	var all []*Member
	for i := range list.Items {
		md := &list.Items[i]
		m := member(ctx, w, owners.MachineDeployments, "MachineDeployment", md)
		sets := &clusterv1.MachineSetList{}
		if _, err := w.chain.Children(ctx, md, sets); err != nil {
			return nil, err
		}
		for i := range sets.Items {
			below, err := w.machineSet(ctx, &sets.Items[i])
			if err != nil {
				return nil, err
			}
			m.Children = append(m.Children, below)
		}
		all = append(all, m)
	}
	return all, nil
}

func (w *walk) machinePools(ctx context.Context, cluster *clusterv1.Cluster) ([]*Member, error) {
	list := &clusterv1.MachinePoolList{}
	if _, err := w.chain.Members(ctx, client.ObjectKeyFromObject(cluster), list); err != nil {
		return nil, err
	}
	var all []*Member
	for i := range list.Items {
		mp := &list.Items[i]
		m := member(ctx, w, owners.MachinePools, "MachinePool", mp)
		machines, err := w.machinesOf(ctx, mp)
		if err != nil {
			return nil, err
		}
		m.Children = slices.Concat(machines, w.nodesOf[mp.UID])
		all = append(all, m)
	}
	return all, nil
}

// machineSets are those that no MachineDeployment has.
func (w *walk) machineSets(ctx context.Context, cluster *clusterv1.Cluster) ([]*Member, error) {
	list := &clusterv1.MachineSetList{}
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
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func (w *walk) machineSet(ctx context.Context, ms *clusterv1.MachineSet) (*Member, error) {
	m := member(ctx, w, owners.MachineSets, "MachineSet", ms)
	var err error
	m.Children, err = w.machinesOf(ctx, ms)
	return m, err
}

// machines are those that nothing in the tree owns.
func (w *walk) machines(ctx context.Context, cluster *clusterv1.Cluster) ([]*Member, error) {
	list := &clusterv1.MachineList{}
	if _, err := w.chain.Members(ctx, client.ObjectKeyFromObject(cluster), list); err != nil {
		return nil, err
	}
	var all []*Member
	for i := range list.Items {
		if m := &list.Items[i]; !w.seen.Has(m.UID) {
			all = append(all, w.machine(ctx, m))
		}
	}
	return all, nil
}

func (w *walk) machinesOf(ctx context.Context, owner client.Object) ([]*Member, error) {
	list := &clusterv1.MachineList{}
	if _, err := w.chain.Children(ctx, owner, list); err != nil {
		return nil, err
	}
	var all []*Member
	for i := range list.Items {
		all = append(all, w.machine(ctx, &list.Items[i]))
	}
	return all, nil
}

func (w *walk) machine(ctx context.Context, m *clusterv1.Machine) *Member {
	one := member(ctx, w, owners.Machines, "Machine", m)
	for _, ref := range owners.ExternalRefs(m) {
		if external := w.external(ctx, types.NamespacedName{Namespace: m.Namespace, Name: ref.Name}, ref.GroupKind()); external != nil {
			one.Children = append(one.Children, external)
		}
	}
	one.Children = append(one.Children, w.nodesOf[m.UID]...)
	return one
}

// external is the InfraMachine or the BootstrapConfig of a Machine, or nil if there is none. All of its kind and namespace are listed
// once.
func (w *walk) external(ctx context.Context, key types.NamespacedName, kind schema.GroupKind) *Member {
	gvk, served, err := w.chain.Served(kind.WithVersion(""))
	switch {
	case err != nil:
		return unknown(gvk, key, err)
	case !served:
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	w.remember(ctx, list, key.Namespace)
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(gvk)
	err = w.Get(ctx, key, object)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return unknown(gvk, key, err)
	}
	if why, other := w.server.LeavesOutGroup(gvk.Group); other {
		return &Member{Ref: inherit.Ref{Kind: gvk.Kind, Object: object}, GVK: gvk, Decided: owners.Decision{Decision: inherit.Skip(why)}}
	}
	return member(ctx, w, owners.ExternalObjects, gvk.Kind, object)
}
