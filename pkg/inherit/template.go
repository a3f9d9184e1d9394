// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// Template is what an owner of Machines declares for them. Rules 4, 8 and 9 differ only in who that owner is.
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
	return &Template{Content: contentOf(ms.Spec.Template, ms.Spec.MinReadySeconds), Selector: ms.Spec.Selector}
}

// TemplateOfControlPlane returns the template of rule 4, from wherever the provider's version of the contract has it.
func TemplateOfControlPlane(cp *capi.ControlPlane) *Template {
	template := ptr.Deref(cp.Spec.MachineTemplate, capi.ControlPlaneMachineTemplate{})
	fields, older := fieldsOf(template.Spec, nil), fieldsOf(template.MachineFields, nil)
	return &Template{Content: Content{
		Labels:      template.Labels,
		Annotations: template.Annotations,
		Taints:      firstList(template.Spec.Taints, template.Taints),
		Fields: Fields{
			NodeDrainTimeout:        cmp.Or(fields.NodeDrainTimeout, older.NodeDrainTimeout),
			NodeVolumeDetachTimeout: cmp.Or(fields.NodeVolumeDetachTimeout, older.NodeVolumeDetachTimeout),
			NodeDeletionTimeout:     cmp.Or(fields.NodeDeletionTimeout, older.NodeDeletionTimeout),
			ReadinessGates:          firstList(fields.ReadinessGates, older.ReadinessGates),
		},
	}}
}

// TemplateOfMachinePool returns the template of rule 9.
func TemplateOfMachinePool(mp *capi.MachinePool) *Template {
	return &Template{Content: contentOf(mp.Spec.Template, mp.Spec.MinReadySeconds)}
}

func contentOf(template capi.MachineTemplate, minReadySeconds *int32) Content {
	return Content{
		Labels:      template.Labels,
		Annotations: template.Annotations,
		Taints:      template.Spec.Taints,
		Fields:      fieldsOf(template.Spec.MachineFields, minReadySeconds),
	}
}

func firstList[T clusterv1.MachineTaint | clusterv1.MachineReadinessGate](lists ...[]T) []T {
	for _, list := range lists {
		if len(list) > 0 {
			return list
		}
	}
	return nil
}
