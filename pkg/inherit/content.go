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
}

// Object is the inheritable content of a whole object.
// As a result it is what the child inherits; as an input it is what the child has.
type Object struct {
	// Version is the object's version of cluster.x-k8s.io, which says where some of the fields are.
	Version string
	// Orphan says of a result that the child names no owner. What an owner brought before stays until there is one again:
	// owner references are lost in a backup and come back later.
	Orphan bool
	// Top is at metadata and spec.
	Top Content
	// Template is at spec.template, where the object has one.
	Template *Content
}

// OfMachineSet returns the content that the MachineSet has.
func OfMachineSet(ms *capi.MachineSet) Object {
	template := contentOf(ms.Spec.Template, ms.Spec.MinReadySeconds)
	return Object{
		Version:  ms.GroupVersionKind().Version,
		Top:      Content{Labels: ms.Labels, Annotations: ms.Annotations},
		Template: &template,
	}
}

// OfMachine returns the content that the Machine has.
func OfMachine(m *capi.Machine) Object {
	return Object{
		Version: m.GroupVersionKind().Version,
		Top:     Content{Labels: m.Labels, Annotations: m.Annotations, Taints: m.Spec.Taints, Fields: fieldsOf(m.Spec, nil)},
	}
}
