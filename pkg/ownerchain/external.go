// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// evaluateExternal applies rules 4 and 8 to an InfraMachine or a BootstrapConfig. Cluster API creates them before their
// Machine, and lets the Machine's owner own them until then.
func (c *Chain) evaluateExternal(
	ctx context.Context, external *metav1.PartialObjectMetadata, cluster *clusterv1.Cluster, policy inherit.Policy,
) (Decision, error) {
	name := clusterLabel(external)
	if name == "" || inherit.IsTemplate(external.Kind) {
		return skip(inherit.NotOfMachine), nil
	}
	owner, instance, err := c.externalOwner(ctx, external, name)
	if err != nil || owner.Outcome == inherit.OwnerNotFound {
		return ownerNotFound(), err
	}
	if instance == nil {
		return skip(inherit.NotOfMachine), nil
	}
	if why, skipped := policy.Skips(instance, cluster); skipped {
		return skip(why), nil
	}
	object := instance
	if isOfTopology(external) {
		object = external
	}
	decided := inherits(policy.External(owner.Template), nil, c.sources(object, name, owner))
	decided.version = owner.versionForExternal()
	return decided.from(owner), nil
}

// externalOwner returns the owner of the external object's Machine, and the object that decides whether to skip it: the Machine, or
// its owner while there is no Machine yet. The external object cannot decide, because providers need not copy the label of a watch
// filter. The result is nil if the external object belongs to no Machine, as those that a MachinePool owns.
func (c *Chain) externalOwner(ctx context.Context, external *metav1.PartialObjectMetadata, cluster string) (MachineOwner, metav1.Object, error) {
	m := &clusterv1.Machine{}
	found, err := c.owner(ctx, external, "Machine", m)
	if err != nil {
		return MachineOwner{}, nil, err
	}
	if !found {
		return c.creator(ctx, external, cluster)
	}
	if m.Spec.ClusterName != cluster || !refersTo(m, external) {
		return MachineOwner{}, nil, nil
	}
	owner, err := c.CallingNobody().MachineOwner(ctx, m) // the request may have cost one API call already
	if _, pool := owner.Object.(*clusterv1.MachinePool); err != nil || pool {
		return MachineOwner{}, nil, err
	}
	return owner, m, nil
}

// creator returns the MachineSet or control plane that has created the external object for a Machine to come.
func (c *Chain) creator(ctx context.Context, external *metav1.PartialObjectMetadata, cluster string) (MachineOwner, metav1.Object, error) {
	if metav1.GetControllerOfNoCopy(external) != nil {
		return MachineOwner{}, nil, nil
	}
	for _, ref := range external.OwnerReferences {
		group := groupOf(&ref)
		if group != inherit.ControlPlaneGroup && (group != clusterv1.GroupVersion.Group || ref.Kind != "MachineSet") || inherit.IsTemplate(ref.Kind) {
			continue
		}
		// It owns the external object as it will own the Machine.
		ref.Controller = new(true)
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: external.Namespace, Name: external.Name, Labels: external.Labels, OwnerReferences: []metav1.OwnerReference{ref},
		}}
		m.Spec.ClusterName = cluster
		owner, err := c.MachineOwner(ctx, m)
		return owner, owner.Object, err
	}
	return MachineOwner{}, nil, nil
}

// refersTo reports whether the Machine says that this is its InfraMachine or its BootstrapConfig.
func refersTo(m *clusterv1.Machine, external *metav1.PartialObjectMetadata) bool {
	kind := external.GroupVersionKind().GroupKind()
	for _, ref := range ExternalRefs(m) {
		if ref.GroupKind() == kind && ref.Name == external.Name {
			return true
		}
	}
	return false
}

// ExternalRefs returns the references of a Machine to its InfraMachine and its BootstrapConfig.
func ExternalRefs(m *clusterv1.Machine) []clusterv1.ContractVersionedObjectReference {
	var refs []clusterv1.ContractVersionedObjectReference
	for _, ref := range []clusterv1.ContractVersionedObjectReference{m.Spec.InfrastructureRef, m.Spec.Bootstrap.ConfigRef} {
		if ref.Kind != "" && ref.Name != "" {
			refs = append(refs, ref)
		}
	}
	return refs
}

func clusterLabel(object metav1.Object) string {
	return object.GetLabels()[clusterv1.ClusterNameLabel]
}
