// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// MachineSet is rule 6: what a MachineSet inherits from the template of its MachineDeployment.
//
// The template's labels reach the MachineSet's own metadata and its template; annotations and taints reach its template
// only. Old MachineSets inherit like the newest, as Cluster API has it. Labels of either selector are not touched.
func (p Policy) MachineSet(md *capi.MachineDeployment, ms *capi.MachineSet) Object {
	template := md.Spec.Template
	labels := withoutSelected(inheritable(template.Labels), md.Spec.Selector, ms.Spec.Selector)
	return Object{
		Top: Content{Labels: labels},
		Template: &Content{
			Labels:      labels,
			Annotations: inheritable(template.Annotations),
			Taints:      p.typed(template.Spec.Taints),
		},
	}
}
