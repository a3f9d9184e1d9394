// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Children returns the objects of the list's kind that owner controls. As with Keys, the list must not be changed.
func (c *Chain) Children(ctx context.Context, owner client.Object, list client.ObjectList) ([]types.NamespacedName, error) {
	return Keys(ctx, c, list, client.InNamespace(owner.GetNamespace()), client.MatchingFields{ownerField: string(owner.GetUID())})
}

// MachinesBelow returns the Machines of a MachineSet, or of all MachineSets of a MachineDeployment. They must not be changed.
func (c *Chain) MachinesBelow(ctx context.Context, owner client.Object) ([]clusterv1.Machine, error) {
	sets := []client.Object{owner}
	if _, ok := owner.(*clusterv1.MachineDeployment); ok {
		list := &clusterv1.MachineSetList{}
		if err := c.controlled(ctx, owner, list); err != nil {
			return nil, err
		}
		sets = nil
		for i := range list.Items {
			sets = append(sets, &list.Items[i])
		}
	}
	var machines []clusterv1.Machine
	for _, set := range sets {
		list := &clusterv1.MachineList{}
		if err := c.controlled(ctx, set, list); err != nil {
			return nil, err
		}
		machines = append(machines, list.Items...)
	}
	return machines, nil
}

// controlled lists what an owner controls, as the cache has it. It must not be changed.
func (c *Chain) controlled(ctx context.Context, owner client.Object, list client.ObjectList) error {
	fields := client.MatchingFields{ownerField: string(owner.GetUID())}
	err := c.List(ctx, list, client.InNamespace(owner.GetNamespace()), fields, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing what %s/%s controls: %w", owner.GetNamespace(), owner.GetName(), err)
	}
	return nil
}

// Members returns the objects of the list's kind that belong to a Cluster. As with Keys, the list must not be changed.
func (c *Chain) Members(ctx context.Context, cluster types.NamespacedName, list client.ObjectList) ([]types.NamespacedName, error) {
	return Keys(ctx, c, list, membersOf(cluster)...)
}

func membersOf(cluster types.NamespacedName) []client.ListOption {
	return []client.ListOption{client.InNamespace(cluster.Namespace), client.MatchingFields{clusterField: cluster.Name}}
}

// NodesOf returns the Nodes in a cache that the Machine may be, or that the MachinePool names. MachineOf decides which it is.
func NodesOf(ctx context.Context, cache client.Reader, source client.Object) ([]types.NamespacedName, error) {
	byField := map[string][]string{}
	switch o := source.(type) {
	case *clusterv1.Machine:
		byField[providerIDField], byField[nodeNameField] = notEmpty(o.Spec.ProviderID), machineNodeNames(o)
	case *clusterv1.MachinePool:
		byField[providerIDField] = o.Spec.ProviderIDList
	default:
		return nil, fmt.Errorf("expected a Machine or a MachinePool, got %T", source)
	}
	var all []types.NamespacedName
	for _, field := range []string{providerIDField, nodeNameField} {
		for _, value := range byField[field] {
			found, err := Keys(ctx, cache, &corev1.NodeList{}, client.MatchingFields{field: value})
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}

// Keys returns the objects of the list's kind that a reader lists. The list shares its content with a cache, and must not be changed:
// when the loop starts, several of all Machines would be in memory at the same time (BenchmarkResidentMemory).
func Keys(ctx context.Context, reader client.Reader, list client.ObjectList, options ...client.ListOption) ([]types.NamespacedName, error) {
	if err := reader.List(ctx, list, append(options[:len(options):len(options)], client.UnsafeDisableDeepCopy)...); err != nil {
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
