// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	skipped inherit.Dropped
	whyNot  func(inherit.Entry) inherit.Dropped
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
	h.decided, h.skipped = decided.Decision, decided.Reason.Dropped()
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
	err = h.rule(ctx, q, any(object), sources)
	return h, sources, err
}

// rule finds the rule by which the object inherits.
func (h *holder) rule(ctx context.Context, q question, object any, sources inherit.Sources) error {
	policy := q.policy
	h.whyNot = func(inherit.Entry) inherit.Dropped { return inherit.DropElsewhere }
	switch o := object.(type) {
	case *inherit.ControlPlane:
		return h.ofTopology(ctx, q, o, o.Labels[clusterv1.ClusterNameLabel], policy.WhyNotControlPlane)
	case *clusterv1.MachineDeployment:
		return h.ofTopology(ctx, q, o, o.Spec.ClusterName, func(s inherit.Section, e inherit.Entry) inherit.Dropped {
			return policy.WhyNotMachineDeployment(s, o, e)
		})
	case *clusterv1.MachinePool:
		return h.ofTopology(ctx, q, o, o.Spec.ClusterName, policy.WhyNotMachinePool)
	case *clusterv1.MachineSet:
		md, err := q.chain.MachineDeployment(ctx, o)
		if md != nil {
			h.whyNot = func(e inherit.Entry) inherit.Dropped { return policy.WhyNotMachineSet(md, o, e) }
		}
		return err
	case *clusterv1.Machine:
		h.handsDown = false
		owner, err := q.chain.MachineOwner(ctx, o)
		h.whyNot = func(e inherit.Entry) inherit.Dropped { return policy.WhyNotMachine(owner.Template, o, e) }
		return err
	case *metav1.PartialObjectMetadata:
		h.handsDown, h.external = false, true
		h.whyNot = templateAbove(sources).WhyNotExternal
	}
	return nil
}

func (h *holder) ofTopology(ctx context.Context, q question, object metav1.Object, name string, whyNot func(inherit.Section, inherit.Entry) inherit.Dropped) error {
	cluster, err := q.chain.Cluster(ctx, object.GetNamespace(), name)
	if err != nil {
		return err
	}
	class, err := q.chain.ClusterClass(ctx, cluster)
	if err != nil || class == nil {
		return err
	}
	if h.section = inherit.SectionOf(cluster, class, object); h.section != nil {
		h.whyNot = func(e inherit.Entry) inherit.Dropped { return whyNot(*h.section, e) }
	}
	return nil
}

// templateAbove returns the template from which a provider's object inherits.
func templateAbove(sources inherit.Sources) *inherit.Template {
	for i := len(sources.All) - 1; i >= 0; i-- {
		switch d := sources.All[i]; o := d.Object.(type) {
		case *clusterv1.MachineSet:
			return inherit.TemplateOfMachineSet(o)
		case *unstructured.Unstructured, *clusterv1.MachinePool:
			return &inherit.Template{Content: d.Content}
		}
	}
	return nil
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
