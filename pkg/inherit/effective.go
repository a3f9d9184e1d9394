// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// EffectiveMachineSet returns the MachineSet as it will be once it has inherited from its MachineDeployment.
func (p Policy) EffectiveMachineSet(md *capi.MachineDeployment, ms *capi.MachineSet) *capi.MachineSet {
	effective := ms.DeepCopy()
	template := &effective.Spec.Template
	after := overlay(contentOf(*template, nil), *p.MachineSet(md, ms).Template)
	template.Labels, template.Annotations, template.Spec.Taints = after.Labels, after.Annotations, after.Taints
	return effective
}

// EffectiveMachine returns the Machine as it will be once it has inherited from its owner. A Node inherits from that: it
// gets its Initialize taints with its first sync only, which must not depend on who is quicker, the Node or the Machine's
// own inheritance.
func (p Policy) EffectiveMachine(template *Template, m *capi.Machine) *capi.Machine {
	if template == nil {
		return m
	}
	effective := m.DeepCopy()
	inherited, _ := p.MachineFrom(template, m) // what is left out here is reported where the Machine itself is seen to
	after := overlay(OfMachine(m).Top, inherited.Top)
	effective.Labels, effective.Annotations, effective.Spec.Taints = after.Labels, after.Annotations, after.Taints
	return effective
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
