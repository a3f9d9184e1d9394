// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// ControlPlaneGroup is the API group of control planes of every provider.
const ControlPlaneGroup = "controlplane.cluster.x-k8s.io"

// MachineOwner is who controls a Machine, and what it declares for it.
type MachineOwner struct {
	// Missing says that the Machine names an owner that was not found, or that is none of ours. What it declares is not
	// known, so nothing is to be brought or taken away.
	Missing bool
	// Template is nil where the owner is missing and where the Machine names none.
	Template *inherit.Template
	// Object is the owner itself: a MachineSet, MachinePool or a provider's control plane (unstructured).
	Object client.Object
	// Declarer names the object where an operator changes what the Machine inherits.
	Declarer string
}

// MachineOwner returns the owner of the Machine: its MachineSet (rule 8), control plane (rule 4) or MachinePool (rule 9).
func (c *Chain) MachineOwner(ctx context.Context, m *capi.Machine) (MachineOwner, error) {
	owner, err := c.machineOwner(ctx, m)
	if err != nil {
		return MachineOwner{}, err
	}
	owner.Missing = owner.Template == nil && metav1.GetControllerOfNoCopy(m) != nil
	owner.Declarer = cmp.Or(topologyOf(m, m.Spec.ClusterName), owner.Declarer, Name("Machine", m))
	return owner, nil
}

func (c *Chain) machineOwner(ctx context.Context, m *capi.Machine) (MachineOwner, error) {
	ref := metav1.GetControllerOfNoCopy(m)
	switch {
	case ref == nil:
		return MachineOwner{}, nil
	case groupOf(ref) == ControlPlaneGroup:
		return c.controlPlane(ctx, m, ref)
	case ref.Kind == "MachinePool":
		return c.machinePool(ctx, m)
	}
	ms, err := c.MachineSet(ctx, m)
	if err != nil || ms == nil {
		return MachineOwner{}, err
	}
	return MachineOwner{Template: inherit.TemplateOfMachineSet(ms), Object: ms, Declarer: DeclarerOfMachineSet(ms)}, nil
}

func (c *Chain) machinePool(ctx context.Context, m *capi.Machine) (MachineOwner, error) {
	mp := &capi.MachinePool{}
	found, err := c.owner(ctx, m, "MachinePool", mp)
	if err != nil || !found || mp.Spec.ClusterName != m.Spec.ClusterName {
		return MachineOwner{}, err
	}
	return MachineOwner{
		Template: inherit.TemplateOfMachinePool(mp), Object: mp, Declarer: Name("MachinePool", mp) + " (spec.template)",
	}, nil
}

// controlPlane reads a control plane of whatever kind. The first look at a kind starts its informer, which is why it is
// bounded in time; a kind that the API server no longer serves declares nothing.
func (c *Chain) controlPlane(ctx context.Context, m *capi.Machine, ref *metav1.OwnerReference) (MachineOwner, error) {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(ref.APIVersion)
	object.SetKind(ref.Kind)
	found, err := c.fetch(ctx, m.Namespace, ref, object)
	if meta.IsNoMatchError(err) {
		return MachineOwner{}, nil
	}
	if err != nil || !found || object.GetLabels()[clusterv1.ClusterNameLabel] != m.Spec.ClusterName {
		return MachineOwner{}, err
	}
	cp := &capi.ControlPlane{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, cp); err != nil {
		return MachineOwner{}, fmt.Errorf("reading %s %s/%s: %w", ref.Kind, m.Namespace, ref.Name, err)
	}
	return MachineOwner{
		Template: inherit.TemplateOfControlPlane(cp), Object: object, Declarer: Name(ref.Kind, object) + " (spec.machineTemplate)",
	}, nil
}
