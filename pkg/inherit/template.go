// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// Template is what an owner of Machines declares for them. Rules 4, 8 and 9 differ only in the kind of owner.
type Template struct {
	Content
	// Selector is what the owner selects its Machines by.
	Selector metav1.LabelSelector
}

// TemplateOfMachineSet returns the template of rule 8; nil where there is no MachineSet.
func TemplateOfMachineSet(ms *capi.MachineSet) *Template {
	if ms == nil {
		return nil
	}
	return &Template{Content: contentOf(ms.Spec), Selector: ms.Spec.Selector}
}

// TemplateOfControlPlane returns the template of rule 4, from the place that the provider's version of the contract gives it.
func TemplateOfControlPlane(cp *capi.ControlPlane) *Template {
	template := ptr.Deref(cp.Spec.MachineTemplate, capi.ControlPlaneMachineTemplate{})
	return &Template{Content: Content{
		Labels:      template.Labels,
		Annotations: template.Annotations,
		Taints:      instead(template.Spec.Taints, template.Taints),
		Fields:      fieldsOf(template.Spec).or(fieldsOf(template.MachineFields)),
	}}
}

// TemplateOfMachinePool returns the template of rule 9.
func TemplateOfMachinePool(mp *capi.MachinePool) *Template {
	return &Template{Content: contentOf(mp.Spec)}
}

func contentOf(spec capi.WorkersSpec) Content {
	template := spec.Template
	return Content{
		Labels:      template.Labels,
		Annotations: template.Annotations,
		Taints:      template.Spec.Taints,
		Fields:      fieldsOf(template.Spec.MachineFields, template.Spec.WorkerFields, spec.WorkerFields),
	}
}
