// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Machine is a Machine as it is, and as it will be once it has inherited itself. Both are the same object if it has everything already.
type Machine struct{ Actual, Effective *clusterv1.Machine }

// Effective returns what an object with this content will declare for its Machines once it has inherited.
func (o Object) Effective(inherited Object) Content {
	if o.Template == nil || inherited.Template == nil {
		return ptr.Deref(o.Template, Content{})
	}
	fitting, _ := Fit(o, Object{Template: inherited.Template}, func() Object { return o }, nil) // the object's own evaluation reports the rest
	declares := *fitting.Template
	if o.Layout.Template.Metadata == nil {
		declares.Labels, declares.Annotations = nil, nil
	}
	if o.Layout.Template.Taints == nil {
		declares.Taints = nil
	}
	return overlay(*o.Template, declares)
}

// EffectiveMachineDeployment returns the MachineDeployment as it will be once it has inherited this.
func EffectiveMachineDeployment(md *clusterv1.MachineDeployment, inherited Object) *clusterv1.MachineDeployment {
	effective, declares := *md, OfMachineDeployment(md).Effective(inherited) // the rest is shared and not changed
	template := &effective.Spec.Template
	template.Labels, template.Annotations, template.Spec.Taints = declares.Labels, declares.Annotations, declares.Taints
	return &effective
}

// EffectiveMachineSet returns what a MachineSet will declare for its Machines once it has inherited from its MachineDeployment.
func (p Policy) EffectiveMachineSet(md *clusterv1.MachineDeployment, ms *clusterv1.MachineSet) *Template {
	inherited, _ := p.MachineSet(md, ms) // as above
	return &Template{Content: OfMachineSet(ms).Effective(inherited), Selector: ms.Spec.Selector}
}

// EffectiveMachine returns the Machine with what it will have once it has inherited from its owner. Nodes inherit from this, so that a
// change at the top reaches them at once. And a Node gets Initialize taints with its first sync only: that must not depend on whether
// the Node or the Machine inherits first.
func (p Policy) EffectiveMachine(template *Template, m *clusterv1.Machine) *clusterv1.Machine {
	if template == nil {
		return m
	}
	var out Drops // as above
	current := OfMachine(m)
	inherited := p.fromTemplate(current.top(&out), template, m)
	if current.Top.hasAll(inherited) {
		return m // as most Machines do, and Nodes are asked about more often than anything else (BenchmarkWebhookCPU)
	}
	fitting, _ := Fit(current, Object{Top: inherited}, func() Object { return current }, nil)
	effective := *m // the rest is shared and not changed
	after := whileUnchanged(current.Top, overlay(current.Top, fitting.Top))
	effective.Labels, effective.Annotations, effective.Spec.Taints = after.Labels, after.Annotations, after.Taints
	return &effective
}

// whileUnchanged returns the content that a Machine will have, with the values that it has now. Only Heirloom reads the annotations
// that declare taints, so those count as they will be.
func whileUnchanged(has, after Content) Content {
	after.Labels = mergeMaps(after.Labels, has.Labels)
	after.Annotations = mergeMaps(after.Annotations, filter(has.Annotations, func(key string) bool { return !declaresTaints(key) }))
	after.Taints = taint.Merge(has.Taints, after.Taints)
	return after
}

// hasAll reports whether a Machine with this content has each entry of another one already, with a value that stays (whileUnchanged).
func (c Content) hasAll(inherited Content) bool {
	for key := range inherited.Labels {
		if !has(c.Labels, key) {
			return false
		}
	}
	for key, value := range inherited.Annotations {
		if now, ok := c.Annotations[key]; !ok || declaresTaints(key) && now != value {
			return false
		}
	}
	return !slices.ContainsFunc(inherited.Taints, func(t clusterv1.MachineTaint) bool {
		return !slices.ContainsFunc(c.Taints, func(has clusterv1.MachineTaint) bool { return taint.MachineID(has) == taint.MachineID(t) })
	})
}

func overlay(has, inherits Content) Content {
	return Content{
		Labels:      mergeMaps(has.Labels, inherits.Labels),
		Annotations: mergeMaps(has.Annotations, inherits.Annotations),
		Taints:      taint.Merge(inherits.Taints, has.Taints),
	}
}
