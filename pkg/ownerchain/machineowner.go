// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// MachineOwner is the controller of a Machine, and what it declares for the Machine.
type MachineOwner struct {
	// Outcome is what the owner means for the Machine: Inherits, NoOwner if the Machine names none, and OwnerNotFound if it names one
	// that does not exist or cannot own Machines.
	Outcome inherit.Outcome
	// Template is what the owner declares; nil if there is none.
	Template *inherit.Template
	// Object is the owner itself: a MachineSet, MachinePool or a provider's control plane (unstructured).
	Object client.Object

	// rule is the number of the rule by which the owner declares for Machines, and for the objects beside them.
	rule int
	// controlPlane is the owner in the form of the contract, if it is a control plane.
	controlPlane *inherit.ControlPlane
}

// MachineOwner returns the owner of the Machine: its MachineSet (rule 8), control plane (rule 4) or MachinePool (rule 9).
func (c *Chain) MachineOwner(ctx context.Context, m *clusterv1.Machine) (MachineOwner, error) {
	owner, err := c.machineOwner(ctx, m)
	if err != nil {
		return MachineOwner{}, err
	}
	switch {
	case owner.Template != nil:
		owner.Outcome = inherit.Inherits
	case metav1.GetControllerOfNoCopy(m) == nil:
		owner.Outcome = inherit.NoOwner
	default:
		owner.Outcome = inherit.OwnerNotFound
	}
	return owner, nil
}

func (c *Chain) machineOwner(ctx context.Context, m *clusterv1.Machine) (MachineOwner, error) {
	ref := metav1.GetControllerOfNoCopy(m)
	switch {
	case ref == nil:
		return MachineOwner{}, nil
	case groupOf(ref) == inherit.ControlPlaneGroup && !inherit.IsTemplate(ref.Kind):
		return c.controlPlane(ctx, m, ref)
	case ref.Kind == "MachinePool":
		return c.machinePool(ctx, m)
	}
	ms, err := c.MachineSet(ctx, m)
	if err != nil || ms == nil {
		return MachineOwner{}, err
	}
	return MachineOwner{Template: inherit.TemplateOfMachineSet(ms), Object: ms, rule: 8}, nil
}

func (c *Chain) machinePool(ctx context.Context, m *clusterv1.Machine) (MachineOwner, error) {
	mp := &clusterv1.MachinePool{}
	found, err := c.owner(ctx, m, "MachinePool", mp)
	if err != nil || !found || mp.Spec.ClusterName != m.Spec.ClusterName {
		return MachineOwner{}, err
	}
	return MachineOwner{Template: inherit.TemplateOfMachinePool(mp), Object: mp, rule: 9}, nil
}

// controlPlane reads the control plane of any kind that owns the Machine.
func (c *Chain) controlPlane(ctx context.Context, m *clusterv1.Machine, ref *metav1.OwnerReference) (MachineOwner, error) {
	object, cp, err := c.ControlPlane(ctx, m.Namespace, ref)
	if err != nil || object == nil || clusterLabel(object) != m.Spec.ClusterName {
		return MachineOwner{}, err
	}
	return MachineOwner{Template: inherit.TemplateOfControlPlane(cp), Object: object, controlPlane: cp, rule: 4}, nil
}

// ControlPlane reads the control plane that a reference names, as it is stored and in the form of the contract. Both are nil if it
// does not exist. The UID of the reference may be empty. The first read of a kind starts its informer. Until that has a list, the
// API server is asked if the reader may ask it; otherwise the error is a providers.NotListedError. All of this is bounded in time.
// A kind that the API server no longer serves declares nothing.
func (c *Chain) ControlPlane(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*unstructured.Unstructured, *inherit.ControlPlane, error) {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	gvk, served, err := c.Served(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
	if err != nil || !served {
		return nil, nil, err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	found, err := c.fetch(ctx, namespace, ref, object)
	if meta.IsNoMatchError(err) || err == nil && !found {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	cp := &inherit.ControlPlane{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, cp); err != nil {
		return nil, nil, fmt.Errorf("reading %s %s/%s: %w", ref.Kind, namespace, ref.Name, err)
	}
	return object, cp, nil
}

// Served returns a provider's kind in the version that the API server prefers, and whether it serves the kind at all.
func (c *Chain) Served(gvk schema.GroupVersionKind) (schema.GroupVersionKind, bool, error) {
	if c.Mapper == nil {
		return gvk, true, nil
	}
	mapping, err := c.Mapper.RESTMapping(gvk.GroupKind())
	if meta.IsNoMatchError(err) {
		return gvk, false, nil
	}
	if err != nil {
		return gvk, false, fmt.Errorf("finding the served version of %s: %w", gvk.Kind, err)
	}
	return mapping.GroupVersionKind, true, nil
}
