// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// object is a pointer to one of the types that children are decoded into.
type object[T any] interface {
	*T
	metav1.Object
}

// children is the webhook for one kind of object that inherits from an owner in Cluster API. What it inherits is the owner
// chain's answer; what it has is read from the request.
type children[T any, P object[T]] struct {
	Dependencies
	inherits func(*ownerchain.Chain, context.Context, P, inherit.Policy) (*ownerchain.Inheritance, error)
	has      func(context.Context, P) (inherit.Object, error)
}

func (h children[T, P]) decide(ctx context.Context, req admission.Request) (answer, error) {
	object, err := decode[T](req.Object)
	if err != nil {
		return answer{}, err
	}
	return h.recheck(ctx, req, func(ctx context.Context, chain *ownerchain.Chain) (answer, error) {
		return h.against(ctx, req, object, chain)
	})
}

// against decides by what the chain knows.
func (h children[T, P]) against(ctx context.Context, req admission.Request, object P, chain *ownerchain.Chain) (answer, error) {
	found, err := h.inherits(chain, ctx, object, h.Policy())
	if err != nil || found == nil {
		return unmatched(), err
	}
	current, err := h.has(ctx, object)
	if err != nil {
		return answer{}, err
	}
	return inject(req, child{
		object: object, current: current, desired: found.Desired, leftOut: found.LeftOut,
		sources: func() inherit.Sources { return found.Sources(ctx) },
		old:     func() (inherit.Object, error) { return h.before(ctx, req) },
	})
}

// before returns what the object had before an update.
func (h children[T, P]) before(ctx context.Context, req admission.Request) (inherit.Object, error) {
	old, err := decode[T](req.OldObject)
	if err != nil {
		return inherit.Object{}, err
	}
	return h.has(ctx, old)
}

// machineSets is the webhook for MachineSets (rules 5 and 6).
func machineSets(d Dependencies) decider {
	return children[capi.MachineSet, *capi.MachineSet]{d, (*ownerchain.Chain).MachineSetInherits, always(inherit.OfMachineSet)}
}

// machines is the webhook for Machines (rules 4, 8 and 9).
func machines(d Dependencies) decider {
	has := func(ctx context.Context, m *capi.Machine) (inherit.Object, error) {
		object := inherit.OfMachine(m)
		object.Layout = d.Schemas.Machine(ctx, m.GroupVersionKind())
		return object, nil
	}
	return children[capi.Machine, *capi.Machine]{d, (*ownerchain.Chain).MachineInherits, has}
}

// machineDeployments is the webhook for MachineDeployments (rule 2).
func machineDeployments(d Dependencies) decider {
	return children[capi.MachineDeployment, *capi.MachineDeployment]{
		d, (*ownerchain.Chain).MachineDeploymentInherits, always(inherit.OfMachineDeployment),
	}
}

// machinePools is the webhook for MachinePools (rule 3).
func machinePools(d Dependencies) decider {
	return children[capi.MachinePool, *capi.MachinePool]{d, (*ownerchain.Chain).MachinePoolInherits, always(inherit.OfMachinePool)}
}

// controlPlanes is the webhook for the control planes of all providers (rule 1). Where one has what it inherits depends on
// its kind's schema.
func controlPlanes(d Dependencies) decider {
	has := func(ctx context.Context, cp *capi.ControlPlane) (inherit.Object, error) {
		layout, err := d.Schemas.ControlPlane(ctx, cp.GroupVersionKind())
		if err != nil {
			return inherit.Object{}, err
		}
		return inherit.OfControlPlane(cp, layout), nil
	}
	return children[capi.ControlPlane, *capi.ControlPlane]{d, (*ownerchain.Chain).ControlPlaneInherits, has}
}

// siblings is the webhook for InfraMachines and BootstrapConfigs of all providers (rules 4 and 8).
func siblings(d Dependencies) decider {
	has := func(_ context.Context, object *metav1.PartialObjectMetadata) (inherit.Object, error) {
		return inherit.OfSibling(object, object.GroupVersionKind().Version), nil
	}
	return children[metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata]{d, (*ownerchain.Chain).SiblingInherits, has}
}

// always makes a has of a function that needs nothing else.
func always[P any](has func(P) inherit.Object) func(context.Context, P) (inherit.Object, error) {
	return func(_ context.Context, object P) (inherit.Object, error) { return has(object), nil }
}
