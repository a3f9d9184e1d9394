// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// MachineSet is rules 5 and 6: what a MachineSet inherits from its MachineDeployment.
//
// Rule 5: the MachineDeployment's own annotations reach the MachineSet's own; its labels reach nothing. Rule 6: the
// template's labels reach the MachineSet's metadata and its template; annotations, taints and in-place fields reach its
// template only. Old MachineSets inherit like the newest, as Cluster API has it. Labels of either selector are not
// touched.
func (p Policy) MachineSet(md *capi.MachineDeployment, ms *capi.MachineSet) Object {
	template := md.Spec.Template
	labels := withoutSelected(inheritable(template.Labels), md.Spec.Selector, ms.Spec.Selector)
	return Object{
		Top: Content{Labels: labels, Annotations: ownAnnotations(md.Annotations)},
		Template: &Content{
			Labels:      labels,
			Annotations: inheritable(template.Annotations),
			Taints:      p.typed(template.Spec.Taints),
			Fields:      fieldsOf(template.Spec, md.Spec.MinReadySeconds),
		},
	}
}

// ownAnnotations returns those of an owner's annotations that are not about the owner itself.
func ownAnnotations(annotations map[string]string) map[string]string {
	return filter(annotations, func(key string) bool { return !never(key) && !bookkeeping(key) })
}
