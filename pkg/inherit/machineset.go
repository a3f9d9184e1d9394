// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// MachineSet is rules 5 and 6: what a MachineSet inherits from its MachineDeployment.
//
// Rule 5: the MachineDeployment's own annotations reach the MachineSet's own; its labels reach nothing. Rule 6: the
// template's labels reach the MachineSet's metadata and its template; annotations, taints and in-place fields reach its
// template only. Old MachineSets inherit like the newest, as Cluster API has it. Labels of either selector are not
// touched. The error lists taints that had to be left out; the rest is inherited.
func (p Policy) MachineSet(md *capi.MachineDeployment, ms *capi.MachineSet) (Object, error) {
	template := contentOf(md.Spec)
	template.Labels = withoutSelected(inheritable(template.Labels), md.Spec.Selector, ms.Spec.Selector)
	template.Annotations = inheritable(template.Annotations)
	var err error
	template.Taints, err = taint.Usable(taint.Worker, p.typed(template.Taints))
	return Object{Top: Content{Labels: template.Labels, Annotations: ownAnnotations(md.Annotations)}, Template: &template}, err
}

// ownAnnotations returns those of an owner's annotations that are not about the owner itself.
func ownAnnotations(annotations map[string]string) map[string]string {
	return filter(annotations, func(key string) bool { return !never(key) && !bookkeeping(key) })
}
