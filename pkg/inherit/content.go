// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Claim says what happens to an entry that the child has from another manager.
type Claim int

const (
	// Owned entries are as the owner declares them and replace another value.
	Owned Claim = iota
	// Default entries give way to the child's own value.
	Default
	// Yielding entries are Default, and Heirloom gives them up as soon as another manager owns them, too.
	Yielding
)

// Content is what can be inherited at one place of an object: at its top, or in the Machine template inside it.
type Content struct {
	Labels      map[string]string
	Annotations map[string]string
	Taints      []clusterv1.MachineTaint
	Fields      Fields
	// Claims holds the annotations and taints that are not Owned, by key and by "<key>:<effect>".
	Claims map[string]Claim
}

// WithYielding adds these annotations to the content, whose own annotations win.
func (c Content) WithYielding(annotations map[string]string) Content {
	if len(annotations) == 0 {
		return c
	}
	claims := map[string]Claim{}
	maps.Copy(claims, c.Claims)
	for key := range annotations {
		if !has(c.Annotations, key) {
			claims[key] = Yielding
		}
	}
	c.Claims = claims
	c.Annotations = mergeMaps(annotations, c.Annotations)
	return c
}

// Object is the inheritable content of a whole object.
// As a result it is what the child inherits; as an input it is what the child has.
type Object struct {
	// Layout says where the object has all this. A result has none: the child's layout counts.
	Layout Layout
	// Top is at metadata and spec.
	Top Content
	// Template is in the object's Machine template, if it has one.
	Template *Content
}

// OfMachineSet returns the content that the MachineSet has.
func OfMachineSet(ms *clusterv1.MachineSet) Object {
	return ofWorkers(ms, contentOf(&ms.Spec.Template))
}

// OfMachineDeployment returns the content that the MachineDeployment has.
func OfMachineDeployment(md *clusterv1.MachineDeployment) Object {
	return ofWorkers(md, contentOf(&md.Spec.Template))
}

// OfMachinePool returns the content that the MachinePool has.
func OfMachinePool(mp *clusterv1.MachinePool) Object {
	return ofWorkers(mp, contentOf(&mp.Spec.Template))
}

func ofWorkers(object metav1.Object, template Content) Object {
	return Object{
		Layout:   WorkersLayout,
		Top:      Content{Labels: object.GetLabels(), Annotations: object.GetAnnotations()},
		Template: &template,
	}
}

// OfControlPlane returns the content that the control plane has. Its place differs between providers.
func OfControlPlane(cp *ControlPlane, layout Layout) Object {
	object := Object{Layout: layout, Top: Content{Labels: cp.Labels, Annotations: cp.Annotations}}
	if cp.Spec.MachineTemplate != nil {
		object.Template = &TemplateOfControlPlane(cp).Content
	}
	return object
}

// OfMachine returns the content that the Machine has.
func OfMachine(m *clusterv1.Machine) Object {
	return Object{
		Layout: MachineLayout,
		Top:    Content{Labels: m.Labels, Annotations: m.Annotations, Taints: m.Spec.Taints, Fields: fieldsOf(&m.Spec)},
	}
}
