// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// MachineSet is rules 5 and 6: what a MachineSet inherits from its MachineDeployment.
//
// Rule 5: the MachineDeployment's own annotations reach the MachineSet's own; its labels reach nothing. Rule 6: the
// template's labels reach the MachineSet's metadata and its template; annotations, taints and in-place fields reach its
// template only. Old MachineSets inherit like the newest, as Cluster API has it. Labels of either selector are not
// touched. The error lists taints that had to be left out; the rest is inherited.
func (p Policy) MachineSet(md *clusterv1.MachineDeployment, ms *clusterv1.MachineSet) (Object, error) {
	template := contentOf(&md.Spec.Template)
	template.Labels = inheritableLabels(template.Labels, md.Spec.Selector, ms.Spec.Selector)
	template.Annotations = inheritable(template.Annotations)
	var err error
	template.Taints, err = taint.Usable(taint.Worker, p.typed(template.Taints))
	return Object{Top: Content{Labels: template.Labels, Annotations: ownAnnotations(md.Annotations)}, Template: &template}, err
}

// ownAnnotations returns those of an owner's annotations that are not about the owner itself.
func ownAnnotations(annotations map[string]string) map[string]string {
	return filter(annotations, func(key string) bool { return WhyNotOwn(key) == "" })
}

// WhyNotMachineSet says why rules 5 and 6 do not bring an entry that the MachineDeployment has or declares. Own says that the question
// is about the MachineSet's own metadata.
func (p Policy) WhyNotMachineSet(md *clusterv1.MachineDeployment, ms *clusterv1.MachineSet, e Entry) Dropped {
	template := contentOf(&md.Spec.Template)
	switch {
	case e.Own && e.What == annotationKey && has(md.Annotations, e.Name):
		return WhyNotOwn(e.Name)
	case e.Own && e.What != labelKey, !template.declares(e):
		return DropElsewhere
	case e.What == labelKey:
		return droppedLabel(e.Name, selectedBy(md.Spec.Selector, ms.Spec.Selector))
	case e.What == annotationKey:
		return droppedKey(e.Name)
	case e.What == taintKey:
		return p.droppedTyped(taint.Worker, template.Taints, e.Name)
	}
	return ""
}
