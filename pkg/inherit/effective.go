// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Machine is a Machine as it is, and as it will be once it has inherited. Both are the same object if it has already inherited everything.
type Machine struct{ Actual, Effective *clusterv1.Machine }

// Effective returns the content that the object will declare for its Machines once it has inherited.
func (o Object) Effective(inherited Object) Content {
	if o.Template == nil || inherited.Template == nil {
		return ptr.Deref(o.Template, Content{})
	}
	fitting, _ := Fit(o, Object{Template: inherited.Template}, func() Object { return o }, nil) // the object's evaluation reports the others
	declares := *fitting.Template
	if o.Layout.Template.Metadata == nil {
		declares.Labels, declares.Annotations = nil, nil
	}
	if o.Layout.Template.Taints == nil {
		declares.Taints = nil
	}
	return overlay(*o.Template, declares)
}

// EffectiveMachineDeployment returns the MachineDeployment as it will be once it has inherited this content.
func EffectiveMachineDeployment(md *clusterv1.MachineDeployment, inherited Object) *clusterv1.MachineDeployment {
	effective, declares := *md, OfMachineDeployment(md).Effective(inherited) // other fields are shared and not changed
	template := &effective.Spec.Template
	template.Labels, template.Annotations, template.Spec.Taints = declares.Labels, declares.Annotations, declares.Taints
	return &effective
}

// EffectiveMachineSet returns the template of a MachineSet as it will be once the MachineSet has inherited from its MachineDeployment.
func (p Policy) EffectiveMachineSet(md *clusterv1.MachineDeployment, ms *clusterv1.MachineSet) *Template {
	inherited, _ := p.MachineSet(md, ms) // the MachineSet's own evaluation reports dropped entries
	return &Template{Content: OfMachineSet(ms).Effective(inherited), Selector: ms.Spec.Selector}
}

// EffectiveMachine returns the Machine as it will be once it has inherited from its owner. Nodes inherit from the result, so that a change
// at the top reaches them at once, and OnInitialization taints do not depend on whether the Node or the Machine inherits first.
func (p Policy) EffectiveMachine(template *Template, m *clusterv1.Machine) *clusterv1.Machine {
	if template == nil {
		return m
	}
	var out Drops // the Machine's own evaluation reports them
	current := OfMachine(m)
	inherited := p.fromTemplate(current.top(&out), template, m)
	after := ahead(current.Top, inherited)
	if len(after.Labels) == len(m.Labels) && maps.Equal(after.Annotations, m.Annotations) && len(after.Taints) == len(m.Spec.Taints) {
		return m // most Machines have already inherited everything
	}
	fitting, _ := Fit(current, Object{Top: inherited}, func() Object { return current }, nil)
	effective := *m // other fields are shared and not changed
	after = ahead(current.Top, fitting.Top)
	effective.Labels, effective.Annotations, effective.Spec.Taints = after.Labels, after.Annotations, after.Taints
	return &effective
}

// ahead returns the content that a Machine will have, but with the current values of the entries that it already has. Annotations that
// declare taints have their future values, because only Heirloom reads them.
func ahead(has, inherits Content) Content {
	after := Content{
		Labels: mergeMaps(inherits.Labels, has.Labels), Annotations: mergeMaps(inherits.Annotations, has.Annotations),
		Taints: taint.Merge(has.Taints, inherits.Taints),
	}
	for key, value := range inherits.Annotations {
		if declaresTaints(key) {
			after.Annotations[key] = value
		}
	}
	return after
}

func overlay(has, inherits Content) Content {
	return Content{
		Labels: mergeMaps(has.Labels, inherits.Labels), Annotations: mergeMaps(has.Annotations, inherits.Annotations),
		Taints: taint.Merge(inherits.Taints, has.Taints),
	}
}
