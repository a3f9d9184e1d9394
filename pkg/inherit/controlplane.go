// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ControlPlane is a control plane of any provider, trimmed to what Cluster API's contract says of it. It is only read.
type ControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ControlPlaneSpec `json:"spec,omitempty"`
}

// ControlPlaneSpec is the part of a control plane's spec that the contract names.
type ControlPlaneSpec struct {
	// MachineTemplate is nil for a control plane that does not consist of Machines.
	MachineTemplate *ControlPlaneMachineTemplate `json:"machineTemplate,omitempty"`
}

// ControlPlaneMachineTemplate is what a control plane declares for its Machines, in the two versions of the contract.
type ControlPlaneMachineTemplate struct {
	clusterv1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the fields in the v1beta2 contract.
	Spec ControlPlaneMachineSpec `json:"spec,omitempty"`

	// The v1beta1 contract has the fields beside the metadata.
	Taints                  []clusterv1.MachineTaint         `json:"taints,omitempty"`
	ReadinessGates          []clusterv1.MachineReadinessGate `json:"readinessGates,omitempty"`
	NodeDrainTimeout        *metav1.Duration                 `json:"nodeDrainTimeout,omitempty"`
	NodeVolumeDetachTimeout *metav1.Duration                 `json:"nodeVolumeDetachTimeout,omitempty"`
	NodeDeletionTimeout     *metav1.Duration                 `json:"nodeDeletionTimeout,omitempty"`
}

// ControlPlaneMachineSpec has the fields of a Machine's spec that control planes declare.
type ControlPlaneMachineSpec struct {
	Taints         []clusterv1.MachineTaint         `json:"taints,omitempty"`
	ReadinessGates []clusterv1.MachineReadinessGate `json:"readinessGates,omitempty"`
	Deletion       clusterv1.MachineDeletionSpec    `json:"deletion,omitempty"`
}

// TemplateOfControlPlane returns the template of rule 4, from the place that the provider's version of the contract gives it.
func TemplateOfControlPlane(cp *ControlPlane) *Template {
	template := ptr.Deref(cp.Spec.MachineTemplate, ControlPlaneMachineTemplate{})
	newer := clusterv1.MachineSpec{ReadinessGates: template.Spec.ReadinessGates, Deletion: template.Spec.Deletion}
	older := clusterv1.MachineSpec{ReadinessGates: template.ReadinessGates, Deletion: clusterv1.MachineDeletionSpec{
		NodeDrainTimeoutSeconds:        wholeSeconds(template.NodeDrainTimeout),
		NodeVolumeDetachTimeoutSeconds: wholeSeconds(template.NodeVolumeDetachTimeout),
		NodeDeletionTimeoutSeconds:     wholeSeconds(template.NodeDeletionTimeout),
	}}
	return &Template{Content: Content{
		Labels:      template.Labels,
		Annotations: template.Annotations,
		Taints:      instead(template.Spec.Taints, template.Taints),
		Fields:      fieldsOf(&newer).or(fieldsOf(&older)),
	}}
}

// OfControlPlane returns the content that the control plane has. Its place differs between providers.
func OfControlPlane(cp *ControlPlane, layout Layout) Object {
	object := Object{Layout: layout, Top: metadataOf(cp)}
	if cp.Spec.MachineTemplate != nil {
		object.Template = &TemplateOfControlPlane(cp).Content
	}
	return object
}

// wholeSeconds converts a timeout as Cluster API does.
func wholeSeconds(duration *metav1.Duration) *int32 {
	if duration == nil {
		return nil
	}
	return ptr.To(int32(duration.Duration / time.Second)) //nolint:gosec // Cluster API's own conversion has the same limit
}

// DeepCopyObject implements runtime.Object.
func (cp *ControlPlane) DeepCopyObject() runtime.Object {
	copied := *cp
	copied.ObjectMeta = *cp.ObjectMeta.DeepCopy()
	if template := cp.Spec.MachineTemplate; template != nil {
		of := *template
		of.ObjectMeta = *template.ObjectMeta.DeepCopy()
		of.Taints, of.ReadinessGates = slices.Clone(template.Taints), slices.Clone(template.ReadinessGates)
		of.Spec.Taints, of.Spec.ReadinessGates = slices.Clone(template.Spec.Taints), slices.Clone(template.Spec.ReadinessGates)
		copied.Spec.MachineTemplate = &of
	}
	return &copied
}
