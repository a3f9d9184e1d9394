// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// object is a pointer to one of the types of Cluster API that inherit.
type object[T any] interface {
	*T
	client.Object
}

// children brings the objects of one kind what they inherit. What that is, the owner chain says, to webhooks and loop
// alike.
type children[T any, P object[T]] struct {
	Dependencies
	kind     string
	inherits func(*ownerchain.Chain, context.Context, P, inherit.Policy) (*ownerchain.Inheritance, error)
	has      func(context.Context, P) inherit.Object
	// before does what has to be done also for an object that inherits nothing for now, and also what else a change of the
	// object or its owner leads to. They may be nil.
	before, also func(context.Context, P) error
}

// Reconcile implements reconcile.Reconciler.
func (r children[T, P]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	child := P(new(T))
	if err := r.Client.Get(ctx, req.NamespacedName, child); err != nil {
		return ctrl.Result{}, gone(err, r.kind)
	}
	if cluster := child.GetLabels()[clusterv1.ClusterNameLabel]; cluster != "" {
		ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("Cluster", klog.KRef(req.Namespace, cluster)))
	}
	if r.before != nil {
		if err := r.before(ctx, child); err != nil {
			return ctrl.Result{}, err
		}
	}
	err := r.bring(ctx, child, r.has(ctx, child), func(ctx context.Context, chain *ownerchain.Chain) (*ownerchain.Inheritance, error) {
		return r.inherits(chain, ctx, child, r.Policy())
	})
	if r.also != nil {
		err = errors.Join(err, r.also(ctx, child))
	}
	return r.unlessNotListed(ctx, req.Namespace, child.GetLabels()[clusterv1.ClusterNameLabel], err)
}

// gone passes over an object that does not exist any more.
func gone(err error, kind string) error {
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf("getting the %s: %w", kind, err)
}

func (d Dependencies) machineDeployments() children[capi.MachineDeployment, *capi.MachineDeployment] {
	return children[capi.MachineDeployment, *capi.MachineDeployment]{
		Dependencies: d, kind: "MachineDeployment",
		inherits: (*ownerchain.Chain).MachineDeploymentInherits, has: always(inherit.OfMachineDeployment),
	}
}

func (d Dependencies) machinePools() children[capi.MachinePool, *capi.MachinePool] {
	return children[capi.MachinePool, *capi.MachinePool]{
		Dependencies: d, kind: "MachinePool",
		inherits: (*ownerchain.Chain).MachinePoolInherits, has: always(inherit.OfMachinePool),
	}
}

func (d Dependencies) machineSets() children[capi.MachineSet, *capi.MachineSet] {
	return children[capi.MachineSet, *capi.MachineSet]{
		Dependencies: d, kind: "MachineSet",
		inherits: (*ownerchain.Chain).MachineSetInherits, has: always(inherit.OfMachineSet),
	}
}

func (d Dependencies) machines() children[capi.Machine, *capi.Machine] {
	return children[capi.Machine, *capi.Machine]{
		Dependencies: d, kind: "Machine",
		inherits: (*ownerchain.Chain).MachineInherits,
		has: func(ctx context.Context, m *capi.Machine) inherit.Object {
			object := inherit.OfMachine(m)
			object.Layout = d.Schemas.Machine(ctx, m.GroupVersionKind())
			return object
		},
	}
}

// always makes a has of a function that needs nothing else.
func always[P any](has func(P) inherit.Object) func(context.Context, P) inherit.Object {
	return func(_ context.Context, object P) inherit.Object { return has(object) }
}
