// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/providers"
)

// Inheritance is what an object of Cluster API is to inherit. Webhooks and loop get it from here both, so that they agree
// also on when an object is left alone and on who its owner is.
type Inheritance struct {
	// Desired is what the object should carry by the rules.
	Desired inherit.Object
	// LeftOut says what may not reach the object, and why: taints of its owner, and labels of which cluster-autoscaler cannot
	// be told.
	LeftOut error
	// Sources says where what is inherited is declared, for a warning or an Event.
	Sources func(context.Context) inherit.Sources
}

// ControlPlaneInherits applies rule 1. Like its siblings below, it returns nil for an object that inherits nothing for
// now: it is left alone, or its owner is not known.
func (c *Chain) ControlPlaneInherits(ctx context.Context, cp *capi.ControlPlane, policy inherit.Policy) (*Inheritance, error) {
	section, err := section(ctx, c, cp, clusterLabel(cp), policy, inherit.SectionOfControlPlane)
	if err != nil || section == nil {
		return nil, err
	}
	desired, leftOut := policy.ControlPlane(*section)
	return &Inheritance{Desired: desired, LeftOut: leftOut, Sources: func(ctx context.Context) inherit.Sources {
		return inherit.Sources{All: declaredByTopology(ctx, c.forSources(), cp, cp, clusterLabel(cp), inherit.ControlPlanes, inherit.SectionOfControlPlane)}
	}}, nil
}

// MachineDeploymentInherits applies rules 2 and 14.
func (c *Chain) MachineDeploymentInherits(ctx context.Context, md *capi.MachineDeployment, policy inherit.Policy) (*Inheritance, error) {
	section, err := section(ctx, c, md, md.Spec.ClusterName, policy, inherit.SectionOfMachineDeployment)
	if err != nil {
		return nil, err
	}
	current := inherit.OfMachineDeployment(md)
	if section == nil {
		return c.ownerless(ctx, md, md.Spec.ClusterName, current, c.sourcesOfDeployment(md), policy)
	}
	desired, leftOut := policy.MachineDeployment(*section, md)
	found := &Inheritance{Desired: desired, LeftOut: leftOut, Sources: c.sourcesOfDeployment(md)}
	return found.withCapacity(current, policy), nil
}

// MachinePoolInherits applies rules 3 and 14.
func (c *Chain) MachinePoolInherits(ctx context.Context, mp *capi.MachinePool, policy inherit.Policy) (*Inheritance, error) {
	section, err := section(ctx, c, mp, mp.Spec.ClusterName, policy, inherit.SectionOfMachinePool)
	if err != nil {
		return nil, err
	}
	current := inherit.OfMachinePool(mp)
	if section == nil {
		return c.ownerless(ctx, mp, mp.Spec.ClusterName, current, c.sourcesOfPool(mp), policy)
	}
	desired, leftOut := policy.MachinePool(*section)
	found := &Inheritance{Desired: desired, LeftOut: leftOut, Sources: c.sourcesOfPool(mp)}
	return found.withCapacity(current, policy), nil
}

// MachineSetInherits applies rules 5 and 6, or rule 14 to a MachineSet that stands alone.
func (c *Chain) MachineSetInherits(ctx context.Context, ms *capi.MachineSet, policy inherit.Policy) (*Inheritance, error) {
	cluster, err := c.Cluster(ctx, ms.Namespace, ms.Spec.ClusterName)
	if err != nil || policy.LeftAlone(ms, cluster) != "" {
		return nil, err
	}
	if !inherit.OfMachineDeployments(ms) {
		return c.ownerless(ctx, ms, ms.Spec.ClusterName, inherit.OfMachineSet(ms), c.sourcesOfSet(ms), policy)
	}
	md, err := c.MachineDeployment(ctx, ms)
	if err != nil || md == nil {
		return nil, err
	}
	desired, leftOut := policy.MachineSet(md, ms)
	return &Inheritance{Desired: desired, LeftOut: leftOut, Sources: c.sourcesOfSet(ms)}, nil
}

// ownerless applies rule 14 to an object that nobody hands anything down to. What an owner brought before stays.
func (c *Chain) ownerless(
	ctx context.Context, object metav1.Object, clusterName string, current inherit.Object,
	sources func(context.Context) inherit.Sources, policy inherit.Policy,
) (*Inheritance, error) {
	cluster, err := c.Cluster(ctx, object.GetNamespace(), clusterName)
	if err != nil || policy.LeftAlone(object, cluster) != "" {
		return nil, err
	}
	found := (&Inheritance{Desired: inherit.Object{Orphan: true}, Sources: sources}).withCapacity(current, policy)
	if len(found.Desired.Top.Yielding) == 0 && !inherit.TellsCapacity(current) {
		return nil, nil
	}
	return found, nil
}

// withCapacity adds what the object tells cluster-autoscaler, once it has inherited the rest (rule 14).
func (i *Inheritance) withCapacity(current inherit.Object, policy inherit.Policy) *Inheritance {
	capacity, leftOut := policy.Capacity(current, i.Desired)
	i.Desired.Top.Yielding, i.LeftOut = capacity, errors.Join(i.LeftOut, leftOut)
	return i
}

// MachineInherits applies rules 4, 8 and 9.
func (c *Chain) MachineInherits(ctx context.Context, m *capi.Machine, policy inherit.Policy) (*Inheritance, error) {
	cluster, err := c.Cluster(ctx, m.Namespace, m.Spec.ClusterName)
	if err != nil {
		return nil, err
	}
	if policy.LeftAlone(m, cluster) != "" {
		return machineLeftAlone(m, policy), nil
	}
	owner, err := c.MachineOwner(ctx, m)
	if errors.As(err, new(*providers.NotListedError)) {
		if left := machineLeftAlone(m, policy); left != nil {
			return left, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if owner.Missing {
		return machineLeftAlone(m, policy), nil
	}
	desired, leftOut := policy.MachineFrom(owner.Template, m)
	return &Inheritance{Desired: desired, LeftOut: leftOut, Sources: func(ctx context.Context) inherit.Sources {
		return c.forSources().machineSources(ctx, m, owner)
	}}, nil
}

// machineLeftAlone returns nil, unless even a Machine that is left alone has to give something up.
func machineLeftAlone(m *capi.Machine, policy inherit.Policy) *Inheritance {
	left := policy.MachineLeftAlone(m)
	if left == nil {
		return nil
	}
	return &Inheritance{Desired: *left, Sources: func(context.Context) inherit.Sources { return inherit.Sources{} }}
}

// section returns what the topology of the Cluster of that name and its class declare for the object, as of finds it; nil
// where they declare nothing, or where the object is left alone.
func section[T metav1.Object](
	ctx context.Context, c *Chain, object T, name string, policy inherit.Policy, of func(*capi.Cluster, *capi.ClusterClass, T) *inherit.Section,
) (*inherit.Section, error) {
	cluster, err := c.Cluster(ctx, object.GetNamespace(), name)
	if err != nil || policy.LeftAlone(object, cluster) != "" {
		return nil, err
	}
	class, err := c.ClusterClass(ctx, cluster)
	if err != nil || class == nil {
		return nil, err
	}
	return of(cluster, class, object), nil
}
