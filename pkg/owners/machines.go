// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// machine is a Machine.
type machine struct{ *clusterv1.Machine }

func (o machine) content(context.Context, *Chain) (inherit.Object, error) {
	return inherit.OfMachine(o.Machine), nil
}

// evaluate applies rules 4, 8 and 9.
func (o machine) evaluate(ctx context.Context, c *Chain, _ *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	owner, err := c.MachineOwner(ctx, o.Machine)
	if err != nil || owner.Outcome == inherit.OwnerNotFound {
		return ownerNotFound, err
	}
	desired, dropped := policy.MachineFrom(owner.Template, o.Machine)
	decided := inherits(desired, dropped).from(owner)
	decided.TaintsRefused = policy.ClusterAPITaints == inherit.PropagationDisabled
	return decided, nil
}

func (o machine) sources(ctx context.Context, c *Chain, d Decision) inherit.Sources {
	found := c.declared(ctx, o.Machine, d.owner)
	itself := declaration("Machine", o.Machine, inherit.OfMachine(o.Machine))
	itself.Itself = true
	return with(found, itself)
}

func (o machine) index(values map[string][]string) {
	cluster := o.Spec.ClusterName
	values[ownerField], values[nodeRefField] = ownerUID(o), in(cluster, one(o.Status.NodeRef.Name))
	values[providerIDField], values[nodeNameField] = in(cluster, one(o.Spec.ProviderID)), nil
	if o.Status.NodeRef.Name == "" { // a Machine never changes its Node
		values[nodeNameField] = in(cluster, inherit.MachineNames(o.Machine))
	}
}

func (o machine) trim() {
	o.Status = clusterv1.MachineStatus{
		NodeRef: o.Status.NodeRef, Addresses: inherit.MachineAddresses(o.Machine), ObservedGeneration: o.Status.ObservedGeneration,
		FailureDomain: o.Status.FailureDomain,
	}
}

// external is an InfraMachine or a BootstrapConfig of any provider. Cluster API creates it before its Machine. Until the Machine exists, the
// Machine's owner owns it.
type external struct{ *metav1.PartialObjectMetadata }

func (o external) content(context.Context, *Chain) (inherit.Object, error) {
	return inherit.OfExternal(o.PartialObjectMetadata), nil
}

// evaluate applies rules 4 and 8.
func (o external) evaluate(ctx context.Context, c *Chain, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	if ClusterName(o.PartialObjectMetadata) == "" || inherit.IsTemplate(o.Kind) {
		return skip(inherit.NotOfMachine), nil
	}
	owner, instance, err := o.machineOwner(ctx, c)
	if err != nil || owner.Outcome == inherit.OwnerNotFound {
		return ownerNotFound, err
	}
	if instance == nil {
		return skip(inherit.NotOfMachine), nil
	}
	if why, skipped := policy.Skips(instance, cluster); skipped {
		return skip(why), nil
	}
	desired, dropped := policy.External(owner.Template, inherit.OfExternal(o.PartialObjectMetadata))
	decided := inherits(desired, dropped).from(owner)
	decided.below = instance
	return decided, nil
}

func (o external) sources(ctx context.Context, c *Chain, d Decision) inherit.Sources {
	if isOfTopology(o) {
		d.below = o.PartialObjectMetadata
	}
	return c.declared(ctx, d.below, d.owner)
}

// machineOwner returns the owner of the external object's Machine, and the object that decides whether to skip: the Machine, or its
// owner as long as there is no Machine. The external object cannot decide, because providers need not copy the label of a watch filter.
// The second result is nil if the external object belongs to no Machine, or to a Machine of a MachinePool.
func (o external) machineOwner(ctx context.Context, c *Chain) (MachineOwner, metav1.Object, error) {
	m := &clusterv1.Machine{}
	found, err := c.controller(ctx, o.PartialObjectMetadata, "Machine", m)
	if err != nil {
		return MachineOwner{}, nil, err
	}
	if !found {
		return o.creator(ctx, c)
	}
	if m.Spec.ClusterName != ClusterName(o.PartialObjectMetadata) || !o.isOf(m) {
		return MachineOwner{}, nil, nil
	}
	owner, err := c.cachedOnly().MachineOwner(ctx, m) // the read of the Machine may have cost an API call already
	if _, pool := owner.Object.(*clusterv1.MachinePool); err != nil || pool {
		return MachineOwner{}, nil, err
	}
	return owner, m, nil
}

// creator returns the MachineSet or control plane that has created the external object for a future Machine.
func (o external) creator(ctx context.Context, c *Chain) (MachineOwner, metav1.Object, error) {
	if metav1.GetControllerOfNoCopy(o) != nil {
		return MachineOwner{}, nil, nil
	}
	for _, ref := range o.OwnerReferences {
		group := groupOf(&ref)
		if group != inherit.ControlPlaneGroup && (group != clusterv1.GroupVersion.Group || ref.Kind != "MachineSet") || inherit.IsTemplate(ref.Kind) {
			continue
		}
		ref.Controller = new(true) // as in the future Machine
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, Labels: o.Labels, OwnerReferences: []metav1.OwnerReference{ref},
		}}
		m.Spec.ClusterName = ClusterName(o.PartialObjectMetadata)
		owner, err := c.MachineOwner(ctx, m)
		return owner, owner.Object, err
	}
	return MachineOwner{}, nil, nil
}

// isOf reports whether the external object is the Machine's InfraMachine or BootstrapConfig.
func (o external) isOf(m *clusterv1.Machine) bool {
	kind := o.GroupVersionKind().GroupKind()
	return slices.ContainsFunc(ExternalRefs(m), func(ref clusterv1.ContractVersionedObjectReference) bool {
		return ref.GroupKind() == kind && ref.Name == o.Name
	})
}

// ExternalRefs returns the references of a Machine to its InfraMachine and its BootstrapConfig.
func ExternalRefs(m *clusterv1.Machine) []clusterv1.ContractVersionedObjectReference {
	refs := []clusterv1.ContractVersionedObjectReference{m.Spec.InfrastructureRef, m.Spec.Bootstrap.ConfigRef}
	return slices.DeleteFunc(refs, func(ref clusterv1.ContractVersionedObjectReference) bool { return ref.Kind == "" || ref.Name == "" })
}
