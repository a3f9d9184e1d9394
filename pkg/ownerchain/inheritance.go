// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	// Owner is the object that it is inherited from, where that is a Machine's owner.
	Owner client.Object
}

// ControlPlaneInherits applies rule 1. Like its siblings below, it returns nil for an object that inherits nothing for
// now: it is left alone, or its owner is not known.
func (c *Chain) ControlPlaneInherits(ctx context.Context, cp *capi.ControlPlane, policy inherit.Policy) (*Inheritance, error) {
	cluster, class, err := c.topology(ctx, cp, clusterLabel(cp), policy)
	if err != nil || class == nil {
		return nil, err
	}
	section := inherit.SectionOfControlPlane(cluster, class, cp)
	if section == nil {
		return nil, nil
	}
	desired, leftOut := policy.ControlPlane(*section)
	return &Inheritance{Desired: desired, LeftOut: leftOut, Declarer: declaredByTopology(cluster.Namespace, cluster.Name)}, nil
}

// MachineDeploymentInherits applies rule 2.
func (c *Chain) MachineDeploymentInherits(ctx context.Context, md *capi.MachineDeployment, policy inherit.Policy) (*Inheritance, error) {
	cluster, class, err := c.topology(ctx, md, md.Spec.ClusterName, policy)
	if err != nil || class == nil {
		return nil, err
	}
	section := inherit.SectionOfMachineDeployment(cluster, class, md)
	if section == nil {
		return nil, nil
	}
	desired, leftOut := policy.MachineDeployment(*section, md)
	return &Inheritance{Desired: desired, LeftOut: leftOut, Declarer: declaredByTopology(cluster.Namespace, cluster.Name)}, nil
}

// MachinePoolInherits applies rule 3.
func (c *Chain) MachinePoolInherits(ctx context.Context, mp *capi.MachinePool, policy inherit.Policy) (*Inheritance, error) {
	cluster, class, err := c.topology(ctx, mp, mp.Spec.ClusterName, policy)
	if err != nil || class == nil {
		return nil, err
	}
	section := inherit.SectionOfMachinePool(cluster, class, mp)
	if section == nil {
		return nil, nil
	}
	desired, leftOut := policy.MachinePool(*section)
	return &Inheritance{Desired: desired, LeftOut: leftOut, Declarer: declaredByTopology(cluster.Namespace, cluster.Name)}, nil
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
	return &Inheritance{Desired: desired, LeftOut: leftOut, Declarer: DeclarerOfMachineSet(ms), Owner: md}, nil
}

// MachineInherits applies rules 4, 8 and 9.
func (c *Chain) MachineInherits(ctx context.Context, m *capi.Machine, policy inherit.Policy) (*Inheritance, error) {
	cluster, err := c.Cluster(ctx, m.Namespace, m.Spec.ClusterName)
	if err != nil || policy.LeftAlone(m, cluster) != "" {
		return nil, err
	}
	owner, err := c.MachineOwner(ctx, m)
	if err != nil || owner.Missing {
		return nil, err
	}
	desired, leftOut := policy.MachineFrom(owner.Template, m)
	return &Inheritance{Desired: desired, LeftOut: leftOut, Declarer: owner.Declarer, Owner: owner.Object}, nil
}

// topology returns the Cluster whose topology may manage the object, with its class; nil where there is none or where the
// object is left alone.
func (c *Chain) topology(ctx context.Context, object metav1.Object, name string, policy inherit.Policy) (*capi.Cluster, *capi.ClusterClass, error) {
	cluster, err := c.Cluster(ctx, object.GetNamespace(), name)
	if err != nil || policy.LeftAlone(object, cluster) != "" {
		return nil, nil, err
	}
	class, err := c.ClusterClass(ctx, cluster)
	return cluster, class, err
}
