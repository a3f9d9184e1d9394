// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// Content is what can be inherited at one place of an object: at its top, or in the Machine template inside it.
type Content struct {
	Labels      map[string]string
	Annotations map[string]string
	Taints      []clusterv1.MachineTaint
	Fields      Fields
	// AnnotatedTaints are to become typed, unless the child has a typed taint of its own with the same key and effect.
	AnnotatedTaints []clusterv1.MachineTaint
	// Yielding are annotations that give way to everybody else who owns them.
	Yielding map[string]string
}

// Object is the inheritable content of a whole object.
// As a result it is what the child inherits; as an input it is what the child has.
type Object struct {
	// Layout says where the object has all this. A result has none: its child's counts.
	Layout capi.Layout
	// Orphan says of a result that the child names no owner. What an owner brought before stays until there is one again:
	// owner references are lost in a backup and come back later.
	Orphan bool
	// TaintsRefused says of a result that Cluster API refuses every write of an object that still has taints in its spec. Of
	// ours none stay, not even in an orphan.
	TaintsRefused bool
	// Top is at metadata and spec.
	Top Content
	// Template is in the object's Machine template, where it has one.
	Template *Content
}

// OfMachineSet returns the content that the MachineSet has.
func OfMachineSet(ms *capi.MachineSet) Object {
	template := contentOf(ms.Spec)
	return Object{
		Layout:   capi.WorkersLayout(ms.GroupVersionKind().Version),
		Top:      Content{Labels: ms.Labels, Annotations: ms.Annotations},
		Template: &template,
	}
}

// OfMachineDeployment returns the content that the MachineDeployment has.
func OfMachineDeployment(md *capi.MachineDeployment) Object {
	template := contentOf(md.Spec)
	return Object{
		Layout:   capi.WorkersLayout(md.GroupVersionKind().Version),
		Top:      Content{Labels: md.Labels, Annotations: md.Annotations},
		Template: &template,
	}
}

// OfMachinePool returns the content that the MachinePool has.
func OfMachinePool(mp *capi.MachinePool) Object {
	template := contentOf(mp.Spec)
	return Object{
		Layout:   capi.WorkersLayout(mp.GroupVersionKind().Version),
		Top:      Content{Labels: mp.Labels, Annotations: mp.Annotations},
		Template: &template,
	}
}

// OfControlPlane returns the content that the control plane has; where it has that differs between providers.
func OfControlPlane(cp *capi.ControlPlane, layout capi.Layout) Object {
	object := Object{Layout: layout, Top: Content{Labels: cp.Labels, Annotations: cp.Annotations}}
	if cp.Spec.MachineTemplate != nil {
		object.Template = &TemplateOfControlPlane(cp).Content
	}
	return object
}

// OfMachine returns the content that the Machine has.
func OfMachine(m *capi.Machine) Object {
	return Object{
		Layout: capi.MachineLayout(m.GroupVersionKind().Version),
		Top:    Content{Labels: m.Labels, Annotations: m.Annotations, Taints: m.Spec.Taints, Fields: fieldsOf(m.Spec.MachineFields, m.Spec.WorkerFields)},
	}
}
