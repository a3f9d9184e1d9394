// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Machine is a Machine as it is, and as it will be once it has inherited itself. Both are the same object if it has everything already.
type Machine struct{ Actual, Effective *clusterv1.Machine }

// EffectiveMachineDeployment returns the MachineDeployment as it will be once it has inherited this.
func EffectiveMachineDeployment(md *clusterv1.MachineDeployment, inherited Object) *clusterv1.MachineDeployment {
	effective := md.DeepCopy()
	effective.Spec.Template = inheriting(effective.Spec.Template, OfMachineDeployment(md), inherited)
	return effective
}

// EffectiveMachinePool returns the MachinePool as it will be once it has inherited this.
func EffectiveMachinePool(mp *clusterv1.MachinePool, inherited Object) *clusterv1.MachinePool {
	effective := mp.DeepCopy()
	effective.Spec.Template = inheriting(effective.Spec.Template, OfMachinePool(mp), inherited)
	return effective
}

// EffectiveControlPlane returns what the control plane will declare for its Machines once it has inherited this. The schema of its
// kind decides what it has room for.
func EffectiveControlPlane(cp *ControlPlane, inherited Object, layout Layout) *Template {
	template := TemplateOfControlPlane(cp)
	if cp.Spec.MachineTemplate == nil {
		return template
	}
	declared := *inherited.Template
	if layout.Template.Metadata == nil {
		declared.Labels, declared.Annotations = nil, nil
	}
	if layout.Template.Taints == nil {
		declared.Taints = nil
	}
	after := overlay(template.Content, declared)
	template.Labels, template.Annotations, template.Taints = after.Labels, after.Annotations, after.Taints
	return template
}

// EffectiveMachineSet returns the MachineSet as it will be once it has inherited from its MachineDeployment.
func (p Policy) EffectiveMachineSet(md *clusterv1.MachineDeployment, ms *clusterv1.MachineSet) *clusterv1.MachineSet {
	effective := ms.DeepCopy()
	inherited, _ := p.MachineSet(md, ms) // the object's own evaluation reports what is left out
	effective.Spec.Template = inheriting(effective.Spec.Template, OfMachineSet(ms), inherited)
	return effective
}

// EffectiveMachine returns the Machine with what it will have once it has inherited from its owner. Nodes inherit from this, so that a
// change at the top reaches them at once. And a Node gets Initialize taints with its first sync only: that must not depend on whether
// the Node or the Machine inherits first.
func (p Policy) EffectiveMachine(template *Template, m *clusterv1.Machine) *clusterv1.Machine {
	if template == nil {
		return m
	}
	inherited, _ := p.fromTemplate(template, m) // as above
	has := OfMachine(m)
	if has.Top.hasAll(inherited) {
		return m // as most Machines do, and Nodes are asked about more often than anything else (BenchmarkWebhookCPU)
	}
	copied := *m // the rest is shared and not changed
	effective := &copied
	after := whileUnchanged(has.Top, overlay(has.Top, has.admits(Object{Top: inherited}).Top))
	effective.Labels, effective.Annotations, effective.Spec.Taints = after.Labels, after.Annotations, after.Taints
	return effective
}

// hasAll reports whether a Machine with this content has each entry of another one already, with a value that stays (whileUnchanged).
func (c Content) hasAll(inherited Content) bool {
	return holds(c.Labels, inherited.Labels, func(string) bool { return true }) &&
		holds(c.Annotations, inherited.Annotations, func(key string) bool { return !declaresTaints(key) }) &&
		!slices.ContainsFunc(inherited.Taints, func(t clusterv1.MachineTaint) bool {
			return !slices.ContainsFunc(c.Taints, func(has clusterv1.MachineTaint) bool { return taint.MachineID(has) == taint.MachineID(t) })
		})
}

// holds reports whether a map has all keys of another one, and the values of those that do not stay.
func holds(all, some map[string]string, stays func(key string) bool) bool {
	for key, value := range some {
		if has, ok := all[key]; !ok || !stays(key) && has != value {
			return false
		}
	}
	return true
}

func inheriting(template clusterv1.MachineTemplateSpec, has, inherited Object) clusterv1.MachineTemplateSpec {
	after := overlay(*has.Template, *has.admits(inherited).Template)
	template.Labels, template.Annotations, template.Spec.Taints = after.Labels, after.Annotations, after.Taints
	return template
}

// admits returns the part of inherited that can reach the object, all of whose own content stays.
func (o Object) admits(inherited Object) Object {
	admissible, _ := Admissible(o, inherited, func() Object { return o }, nil) // as above
	return admissible
}

func overlay(has, inherits Content) Content {
	return Content{
		Labels:      mergeMaps(has.Labels, inherits.Labels),
		Annotations: mergeMaps(has.Annotations, inherits.Annotations),
		Taints:      taint.Merge(inherits.Taints, has.Taints),
	}
}

// mergeMaps returns a + b, in which b wins.
func mergeMaps(a, b map[string]string) map[string]string {
	merged := make(map[string]string, len(a)+len(b))
	maps.Copy(merged, a)
	maps.Copy(merged, b)
	return merged
}
