// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Template is what an owner of Machines declares for them. Rules 4, 8 and 9 differ only in the kind of owner.
type Template struct {
	Content
	// Selector is what the owner selects its Machines by.
	Selector metav1.LabelSelector
}

// TemplateOfMachineSet returns the template of rule 8; nil where there is no MachineSet.
func TemplateOfMachineSet(ms *clusterv1.MachineSet) *Template {
	if ms == nil {
		return nil
	}
	return &Template{Content: contentOf(&ms.Spec.Template), Selector: ms.Spec.Selector}
}

// TemplateOfMachinePool returns the template of rule 9.
func TemplateOfMachinePool(mp *clusterv1.MachinePool) *Template {
	return &Template{Content: contentOf(&mp.Spec.Template)}
}

func contentOf(template *clusterv1.MachineTemplateSpec) Content {
	return Content{
		Labels:      template.Labels,
		Annotations: template.Annotations,
		Taints:      template.Spec.Taints,
		Fields:      fieldsOf(&template.Spec),
	}
}
