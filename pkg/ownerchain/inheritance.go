// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Inheritance is what an object of Cluster API is to inherit. Webhooks and loop get it from here both, so that they agree
// also on when an object is left alone and on who its owner is.
type Inheritance struct {
	// Desired is what the object should carry by the rules.
	Desired inherit.Object
	// LeftOut says which of the owner's taints may not reach the object, and why.
	LeftOut error
	// Declarer names the object where an operator changes what is inherited.
	Declarer string
}

// ControlPlaneInherits applies rule 1. Like its siblings below, it returns nil for an object that inherits nothing for
// now: it is left alone, or its owner is not known.
func (c *Chain) ControlPlaneInherits(ctx context.Context, cp *capi.ControlPlane, policy inherit.Policy) (*Inheritance, error) {
	section, err := section(ctx, c, cp, clusterLabel(cp), policy, inherit.SectionOfControlPlane)
	if err != nil || section == nil {
		return nil, err
	}
	desired, leftOut := policy.ControlPlane(*section)
	return &Inheritance{Desired: desired, LeftOut: leftOut, Declarer: declaredByTopology(cp.Namespace, clusterLabel(cp))}, nil
}

// MachineDeploymentInherits applies rule 2.
func (c *Chain) MachineDeploymentInherits(ctx context.Context, md *capi.MachineDeployment, policy inherit.Policy) (*Inheritance, error) {
	section, err := section(ctx, c, md, md.Spec.ClusterName, policy, inherit.SectionOfMachineDeployment)
	if err != nil || section == nil {
		return nil, err
	}
	desired, leftOut := policy.MachineDeployment(*section, md)
	return &Inheritance{Desired: desired, LeftOut: leftOut, Declarer: declaredByTopology(md.Namespace, md.Spec.ClusterName)}, nil
}

// MachinePoolInherits applies rule 3.
func (c *Chain) MachinePoolInherits(ctx context.Context, mp *capi.MachinePool, policy inherit.Policy) (*Inheritance, error) {
	section, err := section(ctx, c, mp, mp.Spec.ClusterName, policy, inherit.SectionOfMachinePool)
	if err != nil || section == nil {
		return nil, err
	}
	desired, leftOut := policy.MachinePool(*section)
	return &Inheritance{Desired: desired, LeftOut: leftOut, Declarer: declaredByTopology(mp.Namespace, mp.Spec.ClusterName)}, nil
}

// MachineSetInherits applies rules 5 and 6.
func (c *Chain) MachineSetInherits(ctx context.Context, ms *capi.MachineSet, policy inherit.Policy) (*Inheritance, error) {
	cluster, err := c.Cluster(ctx, ms.Namespace, ms.Spec.ClusterName)
	if err != nil || policy.LeftAlone(ms, cluster) != "" {
		return nil, err
	}
	md, err := c.MachineDeployment(ctx, ms)
	if err != nil || md == nil {
		return nil, err
	}
	desired, leftOut := policy.MachineSet(md, ms)
	return &Inheritance{Desired: desired, LeftOut: leftOut, Declarer: DeclarerOfMachineSet(ms)}, nil
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
	if err != nil {
		return nil, err
	}
	if owner.Missing {
		return machineLeftAlone(m, policy), nil
	}
	desired, leftOut := policy.MachineFrom(owner.Template, m)
	return &Inheritance{Desired: desired, LeftOut: leftOut, Declarer: owner.Declarer}, nil
}

// machineLeftAlone returns nil, unless even a Machine that is left alone has to give something up.
func machineLeftAlone(m *capi.Machine, policy inherit.Policy) *Inheritance {
	left := policy.MachineLeftAlone(m)
	if left == nil {
		return nil
	}
	return &Inheritance{Desired: *left}
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
