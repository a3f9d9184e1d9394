// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Schemas tells where a kind of control plane has what it can inherit.
type Schemas interface {
	ControlPlane(ctx context.Context, gvk schema.GroupVersionKind) (inherit.Layout, error)
}

// Kind is a row of the table of kinds: all that differs between kinds when Heirloom decides what an object inherits. The functions
// below are the table. P is the type that objects of the kind are decoded into.
type Kind[P metav1.Object] struct {
	// Name is the kind's, or that of its role in Cluster API's contract.
	Name string
	// Content returns what an object has at the places where it can inherit.
	Content func(ctx context.Context, schemas Schemas, object P) (inherit.Object, error)
	// clusterName names the object's Cluster.
	clusterName func(object P) string
	// evaluate finds the object's owner and applies the rules to an object that is not skipped. The Cluster may be nil.
	evaluate func(c *Chain, ctx context.Context, object P, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error)
	// untouched decides once more about an object that would stay as it is; if it is nil, the object does.
	untouched func(policy inherit.Policy, object P, decided inherit.Decision) inherit.Decision
	// unlabelled says that the object itself needs no watch filter label, because providers need not copy it.
	unlabelled bool
}

// Evaluate decides what happens to an object, by what the chain knows. Webhooks, loop and plugin all call it, so that they also
// agree on which objects are skipped and who owns them.
func (k Kind[P]) Evaluate(ctx context.Context, c *Chain, object P, policy inherit.Policy) (Decision, error) {
	cluster, err := c.Cluster(ctx, object.GetNamespace(), k.clusterName(object))
	if err != nil {
		return Decision{}, err
	}
	decided, err := k.decide(ctx, c, object, cluster, policy)
	if err == nil && decided.Untouched() && k.untouched != nil {
		decided.Decision = k.untouched(policy, object, decided.Decision)
	}
	return decided.withCapacity(policy), err
}

// decide is Evaluate for an object whose Cluster is known, without what the object tells cluster-autoscaler.
func (k Kind[P]) decide(ctx context.Context, c *Chain, object P, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	check := policy
	if k.unlabelled {
		check.WatchFilter = ""
	}
	if why, skipped := check.Skips(object, cluster); skipped {
		return skip(why), nil
	}
	return k.evaluate(c, ctx, object, cluster, policy)
}

// ControlPlanes are those of all providers (rule 1). The kind's schema says where one has what it inherits.
func ControlPlanes() Kind[*inherit.ControlPlane] {
	return Kind[*inherit.ControlPlane]{
		Name: "ControlPlane",
		Content: func(ctx context.Context, schemas Schemas, cp *inherit.ControlPlane) (inherit.Object, error) {
			layout, err := schemas.ControlPlane(ctx, cp.GroupVersionKind())
			return inherit.OfControlPlane(cp, layout), err
		},
		clusterName: func(cp *inherit.ControlPlane) string { return clusterLabel(cp) },
		evaluate:    (*Chain).evaluateControlPlane,
	}
}

// MachineDeployments inherit by rules 2 and 14.
func MachineDeployments() Kind[*clusterv1.MachineDeployment] {
	return Kind[*clusterv1.MachineDeployment]{
		Name:        "MachineDeployment",
		Content:     always(inherit.OfMachineDeployment),
		clusterName: func(md *clusterv1.MachineDeployment) string { return md.Spec.ClusterName },
		evaluate:    (*Chain).evaluateMachineDeployment,
	}
}

// MachinePools inherit by rules 3 and 14.
func MachinePools() Kind[*clusterv1.MachinePool] {
	return Kind[*clusterv1.MachinePool]{
		Name:        "MachinePool",
		Content:     always(inherit.OfMachinePool),
		clusterName: func(mp *clusterv1.MachinePool) string { return mp.Spec.ClusterName },
		evaluate:    (*Chain).evaluateMachinePool,
	}
}

// MachineSets inherit by rules 5 and 6, and by rule 14 where they stand alone.
func MachineSets() Kind[*clusterv1.MachineSet] {
	return Kind[*clusterv1.MachineSet]{
		Name:        "MachineSet",
		Content:     always(inherit.OfMachineSet),
		clusterName: func(ms *clusterv1.MachineSet) string { return ms.Spec.ClusterName },
		evaluate:    (*Chain).evaluateMachineSet,
	}
}

// Machines inherit by rules 4, 8 and 9.
func Machines() Kind[*clusterv1.Machine] {
	return Kind[*clusterv1.Machine]{
		Name:        "Machine",
		Content:     always(inherit.OfMachine),
		clusterName: func(m *clusterv1.Machine) string { return m.Spec.ClusterName },
		evaluate:    (*Chain).evaluateMachine,
		untouched:   inherit.Policy.SkipMachine,
	}
}

// ExternalObjects are InfraMachines and BootstrapConfigs of all providers (rules 4 and 8).
func ExternalObjects() Kind[*metav1.PartialObjectMetadata] {
	return Kind[*metav1.PartialObjectMetadata]{
		Name:        "external object",
		Content:     always(inherit.OfExternal),
		clusterName: func(object *metav1.PartialObjectMetadata) string { return clusterLabel(object) },
		evaluate:    (*Chain).evaluateExternal,
		unlabelled:  true,
	}
}

// always returns the content of a kind that has it at the same places in every schema.
func always[P any](of func(P) inherit.Object) func(context.Context, Schemas, P) (inherit.Object, error) {
	return func(_ context.Context, _ Schemas, object P) (inherit.Object, error) { return of(object), nil }
}
