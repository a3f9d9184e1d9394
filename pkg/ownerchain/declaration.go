// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Declaration is where taints that a Machine brings to its Node are declared, and which Nodes are alike.
type Declaration struct {
	// Set is what the Machine is of: a MachineDeployment, control plane, MachinePool, or MachineSet that stands alone; the
	// Machine itself, where it has none. Kind is its kind.
	Set  client.Object
	Kind string
	// Nodes is how many Nodes the Set has, as far as that is known.
	Nodes int
	// Class is the ClusterClass if it declares one of the taints, and Topology the Cluster if its topology does; otherwise nil.
	Class    *capi.ClusterClass
	Topology *capi.Cluster
}

// Name names the Set.
func (d *Declaration) Name() string {
	return Name(d.Kind, d.Set)
}

// Editable returns the object where an operator changes the taints, and its name. Of several it is the one that is about
// most Nodes.
func (d *Declaration) Editable() (client.Object, string) {
	switch {
	case d.Class != nil:
		return d.Class, Name("ClusterClass", d.Class)
	case d.Topology != nil:
		return d.Topology, Name("Cluster", d.Topology)
	}
	return d.Set, d.Name()
}

// Declaration returns where these taints of a Node are declared.
func (c *Chain) Declaration(ctx context.Context, from inherit.NodeSource, ids []taint.ID) (*Declaration, error) {
	d, err := c.setOf(ctx, from)
	if err != nil {
		return nil, err
	}
	if d.Nodes, err = c.nodesIn(ctx, d.Set); err != nil {
		return nil, err
	}
	cluster, err := c.Cluster(ctx, from.Cluster.Namespace, from.Cluster.Name)
	if err != nil {
		return nil, err
	}
	class, err := c.ClusterClass(ctx, cluster)
	if err != nil || class == nil {
		return d, err
	}
	byClass, byTopology, err := declares(cluster, class, d.Set, ids)
	if byClass {
		d.Class = class
	}
	if byTopology {
		d.Topology = cluster
	}
	return d, err
}

// declares reports whether the class and whether the topology declare one of the taints for the set.
func declares(cluster *capi.Cluster, class *capi.ClusterClass, set client.Object, ids []taint.ID) (byClass, byTopology bool, err error) {
	var section *inherit.Section
	switch set := set.(type) {
	case *capi.MachineDeployment:
		section = inherit.SectionOfMachineDeployment(cluster, class, set)
	case *capi.MachinePool:
		section = inherit.SectionOfMachinePool(cluster, class, set)
	case *unstructured.Unstructured:
		cp := &capi.ControlPlane{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(set.Object, cp); err != nil {
			return false, false, fmt.Errorf("reading %s: %w", Name(set.GetKind(), set), err)
		}
		if section = inherit.SectionOfControlPlane(cluster, class, cp); section == nil {
			return inherit.TopologyManages(cluster, cp), false, nil
		}
		byClass, byTopology = section.Declare(ids)
		return byClass || !byTopology, byTopology, nil
	}
	if section == nil {
		return false, false, nil
	}
	byClass, byTopology = section.Declare(ids)
	return byClass, byTopology, nil
}

// setOf returns what the Node is of.
func (c *Chain) setOf(ctx context.Context, from inherit.NodeSource) (*Declaration, error) {
	m, ok := from.Object.(*capi.Machine)
	if !ok {
		return &Declaration{Set: from.Object, Kind: from.Kind}, nil
	}
	owner, err := c.MachineOwner(ctx, m)
	if err != nil {
		return nil, err
	}
	switch object := owner.Object.(type) {
	case nil:
		return &Declaration{Set: m, Kind: "Machine"}, nil
	case *capi.MachineSet:
		md, err := c.MachineDeployment(ctx, object)
		if err != nil || md == nil {
			return &Declaration{Set: object, Kind: "MachineSet"}, err
		}
		return &Declaration{Set: md, Kind: "MachineDeployment"}, nil
	case *capi.MachinePool:
		return &Declaration{Set: object, Kind: "MachinePool"}, nil
	default:
		return &Declaration{Set: object, Kind: object.GetObjectKind().GroupVersionKind().Kind}, nil
	}
}

// nodesIn returns how many Nodes the Machines of a set have, or a MachinePool names. Nothing of what is listed is changed,
// so nothing is copied.
func (c *Chain) nodesIn(ctx context.Context, set client.Object) (int, error) {
	owners := []client.Object{set}
	if _, ok := set.(*capi.MachineDeployment); ok {
		sets := &capi.MachineSetList{}
		if err := c.controlled(ctx, set, sets); err != nil {
			return 0, err
		}
		owners = nil
		for i := range sets.Items {
			owners = append(owners, &sets.Items[i])
		}
	}
	nodes := 0
	for _, owner := range owners {
		machines := &capi.MachineList{}
		if err := c.controlled(ctx, owner, machines); err != nil {
			return 0, err
		}
		for i := range machines.Items {
			if machines.Items[i].Status.NodeRef.Name != "" {
				nodes++
			}
		}
	}
	if mp, ok := set.(*capi.MachinePool); ok {
		nodes = max(nodes, len(mp.Spec.ProviderIDList))
	}
	return nodes, nil
}

func (c *Chain) controlled(ctx context.Context, owner client.Object, list client.ObjectList) error {
	err := c.List(ctx, list, client.InNamespace(owner.GetNamespace()), client.MatchingFields{ownerField: string(owner.GetUID())}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("counting the Nodes of %s/%s: %w", owner.GetNamespace(), owner.GetName(), err)
	}
	return nil
}
