// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/rules"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// holder is an object of the chain that what is declared above it has to reach first.
type holder struct {
	inherit.Ref
	has inherit.Object
	// decided is what is in force, and would what would be if the object were not left alone.
	decided, would inherit.Decision
	// skipped is the reason of what is in force, in one word.
	skipped inherit.Why
	// section is what a topology declares for it.
	section *inherit.Section
	// handsDown says that the object has a Machine template, external that it is one of a provider beside a Machine.
	handsDown, external bool
}

// hold evaluates an object, as it is and as if nothing were left alone.
func hold[P client.Object](ctx context.Context, q question, kind owners.Kind, ref inherit.Ref, object P) (*holder, inherit.Sources, error) {
	h := &holder{Ref: ref}
	var err error
	if h.has, err = kind.Content(ctx, q.chain, object); err != nil {
		return nil, inherit.Sources{}, err
	}
	policy := q.policy
	decided, err := kind.Evaluate(ctx, q.chain, object, policy)
	if err != nil {
		return nil, inherit.Sources{}, err
	}
	h.decided, h.skipped = decided.Decision, rules.WhySkipped(decided.Reason)
	if why, other := q.settings.LeavesOut(object.GetNamespace()); other && decided.Outcome != inherit.OwnerNotFound {
		h.decided, h.skipped = inherit.Skip(why), otherNamespace
	}
	if decided.Reason != "" && decided.Outcome != inherit.OwnerNotFound {
		policy.SkipNothing = true
		if decided, err = kind.Evaluate(ctx, q.chain, object, policy); err != nil {
			return nil, inherit.Sources{}, err
		}
	}
	h.would = decided.Decision
	sources := decided.Sources(ctx)
	h.handsDown = true
	switch o := any(object).(type) {
	case *inherit.ControlPlane:
		h.section, err = q.section(ctx, o, o.Labels[clusterv1.ClusterNameLabel])
	case *clusterv1.MachineDeployment:
		h.section, err = q.section(ctx, o, o.Spec.ClusterName)
	case *clusterv1.MachinePool:
		h.section, err = q.section(ctx, o, o.Spec.ClusterName)
	case *clusterv1.Machine:
		h.handsDown = false
	case *metav1.PartialObjectMetadata:
		h.handsDown, h.external = false, true
	}
	return h, sources, err
}

// section returns what a topology declares for an object, or nil.
func (q question) section(ctx context.Context, object metav1.Object, name string) (*inherit.Section, error) {
	cluster, err := q.chain.Cluster(ctx, object.GetNamespace(), name)
	if err != nil {
		return nil, err
	}
	class, err := q.chain.ClusterClass(ctx, cluster)
	if err != nil || class == nil {
		return nil, err
	}
	return inherit.SectionOf(cluster, class, object), nil
}

// holders are the objects between the top of the chain and the explained one, which is the last.
func (q question) holders(ctx context.Context, sources inherit.Sources, last *holder) ([]*holder, error) {
	var all []*holder
	var errs []error
	for _, d := range sources.All {
		if last != nil && d.Object.GetUID() == last.Object.GetUID() && d.Object.GetName() == last.Object.GetName() {
			continue
		}
		h, err := q.holder(ctx, d)
		if h != nil {
			all = append(all, h)
		}
		errs = append(errs, err)
	}
	if last != nil {
		all = append(all, last)
	}
	return all, errors.Join(errs...)
}

func (q question) holder(ctx context.Context, d inherit.Declaration) (h *holder, err error) {
	switch o := d.Object.(type) {
	case *clusterv1.MachineDeployment:
		h, _, err = hold(ctx, q, owners.MachineDeployments, d.Ref, o)
	case *clusterv1.MachinePool:
		h, _, err = hold(ctx, q, owners.MachinePools, d.Ref, o)
	case *clusterv1.MachineSet:
		h, _, err = hold(ctx, q, owners.MachineSets, d.Ref, o)
	case *clusterv1.Machine:
		h, _, err = hold(ctx, q, owners.Machines, d.Ref, o)
	case *unstructured.Unstructured:
		ref := &metav1.OwnerReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName()}
		_, cp, readErr := q.chain.ControlPlane(ctx, o.GetNamespace(), ref)
		if readErr != nil || cp == nil {
			return nil, readErr
		}
		h, _, err = hold(ctx, q, owners.ControlPlanes, d.Ref, cp)
	}
	return h, err
}
