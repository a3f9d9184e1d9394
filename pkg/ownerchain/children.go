// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Children returns the objects of the list's kind that owner controls.
func (c *Chain) Children(ctx context.Context, owner client.Object, list client.ObjectList) ([]types.NamespacedName, error) {
	return c.keys(ctx, list, client.InNamespace(owner.GetNamespace()), client.MatchingFields{ownerField: string(owner.GetUID())})
}

// Members returns the objects of the list's kind that belong to a Cluster.
func (c *Chain) Members(ctx context.Context, cluster client.Object, list client.ObjectList) ([]types.NamespacedName, error) {
	return c.keys(ctx, list, client.InNamespace(cluster.GetNamespace()), client.MatchingFields{clusterField: cluster.GetName()})
}

// All returns every object of the list's kind.
func (c *Chain) All(ctx context.Context, list client.ObjectList) ([]types.NamespacedName, error) {
	return c.keys(ctx, list)
}

// NodesOf returns those of the Nodes in a cache that the Machine may be. Which it is, MachineOf decides.
func (c *Chain) NodesOf(ctx context.Context, nodes client.Reader, m *capi.Machine) ([]types.NamespacedName, error) {
	var all []types.NamespacedName
	lookups := []client.MatchingFields{}
	if m.Spec.ProviderID != "" {
		lookups = append(lookups, client.MatchingFields{providerIDField: m.Spec.ProviderID})
	}
	for _, name := range append(inherit.MachineNames(m), notEmpty(m.Status.NodeRef.Name)...) {
		lookups = append(lookups, client.MatchingFields{nodeNameField: name})
	}
	for _, fields := range lookups {
		found, err := keys(ctx, nodes, &corev1.NodeList{}, fields)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// NodesOfPool returns those of the Nodes in a cache that the MachinePool names.
func (c *Chain) NodesOfPool(ctx context.Context, nodes client.Reader, mp *capi.MachinePool) ([]types.NamespacedName, error) {
	var all []types.NamespacedName
	for _, providerID := range mp.Spec.ProviderIDList {
		found, err := keys(ctx, nodes, &corev1.NodeList{}, client.MatchingFields{providerIDField: providerID})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (c *Chain) keys(ctx context.Context, list client.ObjectList, options ...client.ListOption) ([]types.NamespacedName, error) {
	return keys(ctx, c, list, options...)
}

func keys(ctx context.Context, reader client.Reader, list client.ObjectList, options ...client.ListOption) ([]types.NamespacedName, error) {
	if err := reader.List(ctx, list, options...); err != nil {
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
