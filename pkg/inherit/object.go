// SPDX-License-Identifier: Apache-2.0

// Package inherit holds the inheritance rules of docs/design.md §1. From an owner and a child, they compute the entries that the child
// inherits, and the reason for each entry that they leave out.
//
// The package is pure: no client, no context, no logger, no clock. Webhooks, loop and plugin call the same rules, so they agree by
// construction. Where to find the rules:
//
//	rules 1-3      topology.go    ClusterClass and Cluster topology → control plane, MachineDeployment, MachinePool
//	rules 4-6, 8, 9  machine.go   templates → MachineSet, Machine, InfraMachine, BootstrapConfig
//	rules 11-13    nodeplan.go    Machine → Node; in the order of the plan: nodetaints.go, nodemetadata.go, record.go
//	for Nodes      node.go        what is read from a Node; nodecleanup.go: what stays of it
//	               sync.go        keys that a Cluster names; facts.go: facts and the worker role
//	rule 14        capacity.go    labels and taints of future Nodes, for cluster-autoscaler
//	left out       drop.go        keys that a rule leaves out, and why; fit.go: entries without room
//	order          effective.go   a Node inherits from its Machine as it will be
//	fields         fields.go      in-place fields and their paths
//	skipped        skip.go        objects that are paused, being deleted or labeled
//	identity       nodesource.go  which Machine a Node belongs to
package inherit

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Kinds are the kinds of Cluster API whose objects inherit.
var Kinds = []string{"MachineDeployment", "MachinePool", "MachineSet", "Machine"} //nolint:gochecknoglobals // nothing changes it

// The sorts of entries.
const (
	labelKey      = "label"
	annotationKey = "annotation"
	taintKey      = "taint"
	fieldKey      = "field"
)

// Entry names a label, an annotation, a taint or an in-place field of an object that inherits.
type Entry struct {
	What string // label, annotation, taint or field
	// Name is the key, "<key>:<effect>" of a taint, the name of a field, or the condition type of a readiness gate.
	Name string
	Own  bool // at the object's top, not in its Machine template
}

// TaintEntry names a taint.
func TaintEntry(id taint.ID) Entry { return Entry{What: taintKey, Name: id.String()} }

// Claim says what happens to an entry that the child has from another manager.
type Claim int

const (
	// Owned entries have the value that the owner declares, and replace another value.
	Owned Claim = iota
	// Default entries give way to the child's own value.
	Default
	// Yielding entries are Default, and Heirloom gives them up as soon as another manager also owns them.
	Yielding
)

// Content holds the inheritable entries of a part of an object: of its top, or of its Machine template.
type Content struct {
	Labels      map[string]string
	Annotations map[string]string
	Taints      []clusterv1.MachineTaint
	Fields      Fields
	// Claims holds the claims of annotations and taints that are not Owned, by key or "<key>:<effect>".
	Claims map[string]Claim
}

// Object is the inheritable content of a whole object: the content that a child has or, as the result of a rule, inherits.
type Object struct {
	Layout   Layout   // the paths of the content; empty in a result, because the child's layout counts
	Top      Content  // at metadata and spec
	Template *Content // in the object's Machine template; nil if it has none
}

// Template is the content that an owner of Machines declares for them.
type Template struct {
	Content
	Selector metav1.LabelSelector // by which the owner selects its Machines
}

// OfMachineSet returns the content that the MachineSet has.
func OfMachineSet(ms *clusterv1.MachineSet) Object { return ofWorkers(ms, &ms.Spec.Template) }

// OfMachineDeployment returns the content that the MachineDeployment has.
func OfMachineDeployment(md *clusterv1.MachineDeployment) Object {
	return ofWorkers(md, &md.Spec.Template)
}

// OfMachinePool returns the content that the MachinePool has.
func OfMachinePool(mp *clusterv1.MachinePool) Object { return ofWorkers(mp, &mp.Spec.Template) }

func ofWorkers(object metav1.Object, template *clusterv1.MachineTemplateSpec) Object {
	content := contentOf(template)
	return Object{Layout: WorkersLayout, Top: metadataOf(object), Template: &content}
}

// OfMachine returns the content that the Machine has.
func OfMachine(m *clusterv1.Machine) Object {
	top := metadataOf(m)
	top.Taints, top.Fields = m.Spec.Taints, fieldsOf(&m.Spec)
	return Object{Layout: MachineLayout, Top: top}
}

// OfExternal returns the content that an InfraMachine or a BootstrapConfig has.
func OfExternal(object *metav1.PartialObjectMetadata) Object {
	layout := Layout{Version: object.GroupVersionKind().Version, Top: Paths{Metadata: []string{"metadata"}}}
	return Object{Layout: layout, Top: metadataOf(object)}
}

func metadataOf(object metav1.Object) Content {
	return Content{Labels: object.GetLabels(), Annotations: object.GetAnnotations()}
}

func contentOf(t *clusterv1.MachineTemplateSpec) Content {
	return Content{Labels: t.Labels, Annotations: t.Annotations, Taints: t.Spec.Taints, Fields: fieldsOf(&t.Spec)}
}

// TemplateOfMachineSet returns the template of rule 8; nil if there is no MachineSet.
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

// WithYielding returns the content with these annotations as Yielding entries. The content's own annotations win.
func (c Content) WithYielding(annotations map[string]string) Content {
	if len(annotations) == 0 {
		return c
	}
	claims := mergeMaps(c.Claims, nil)
	for key := range annotations {
		if !has(c.Annotations, key) {
			claims[key] = Yielding
		}
	}
	c.Claims, c.Annotations = claims, mergeMaps(annotations, c.Annotations)
	return c
}

// Value returns the value of an entry, and whether the content has it. A typed taint wins over an annotated taint; annotated taints that
// cannot be read do not count. The propagation of a taint is not part of the value.
func (c Content) Value(e Entry) (string, bool) {
	switch e.What {
	case labelKey:
		return c.Labels[e.Name], has(c.Labels, e.Name)
	case annotationKey:
		return c.Annotations[e.Name], has(c.Annotations, e.Name)
	case taintKey:
		annotated, _ := taint.FromAnnotations(c.Annotations)
		for _, t := range taint.Merge(c.Taints, annotated) {
			if taint.MachineID(t).String() == e.Name {
				return t.Value, true
			}
		}
		return "", false
	}
	return c.Fields.value(e.Name)
}

// TypedTaint reports whether the content has the typed taint "<key>:<effect>".
func (c Content) TypedTaint(id string) bool {
	return slices.ContainsFunc(c.Taints, func(t clusterv1.MachineTaint) bool { return taint.MachineID(t).String() == id })
}

// TaintAnnotation returns the annotation that declares the taint "<key>:<effect>", or "" if the taint is typed or missing.
func (c Content) TaintAnnotation(id string) string {
	if c.TypedTaint(id) {
		return ""
	}
	for _, name := range taint.Annotations {
		annotated, _ := taint.FromAnnotations(map[string]string{name: c.Annotations[name]})
		if (Content{Taints: annotated}).TypedTaint(id) {
			return name
		}
	}
	return ""
}

func has[K comparable, V any](m map[K]V, key K) bool {
	_, ok := m[key]
	return ok
}

// filter returns a copy of the map with the keys that keep selects.
func filter(m map[string]string, keep func(key string) bool) map[string]string {
	kept := make(map[string]string, len(m))
	for key, value := range m {
		if keep(key) {
			kept[key] = value
		}
	}
	return kept
}

// mergeMaps returns a + b, in which b wins.
func mergeMaps[V any](a, b map[string]V) map[string]V {
	merged := make(map[string]V, len(a)+len(b))
	maps.Copy(merged, a)
	maps.Copy(merged, b)
	return merged
}

// instead returns the first list if it is declared, even if empty, and the second otherwise.
func instead[T any](list, otherwise []T) []T {
	if list != nil {
		return list
	}
	return otherwise
}

// ControlPlane is a control plane of any provider. It has only the fields of Cluster API's contract, and is never written.
type ControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ControlPlaneSpec `json:"spec,omitempty"`
}

// ControlPlaneSpec is the part of a control plane's spec that the contract names.
type ControlPlaneSpec struct {
	MachineTemplate *ControlPlaneMachineTemplate `json:"machineTemplate,omitempty"` // nil if the control plane does not consist of Machines
}

// OfControlPlane returns the content that the control plane has. Its layout differs between providers.
func OfControlPlane(cp *ControlPlane, layout Layout) Object {
	object := Object{Layout: layout, Top: metadataOf(cp)}
	if cp.Spec.MachineTemplate != nil {
		object.Template = &TemplateOfControlPlane(cp).Content
	}
	return object
}

// DeepCopyObject implements runtime.Object.
func (cp *ControlPlane) DeepCopyObject() runtime.Object {
	copied, metadata := *cp, &cp.ObjectMeta
	copied.ObjectMeta = *metadata.DeepCopy()
	if template := cp.Spec.MachineTemplate; template != nil {
		of, metadata := *template, &template.ObjectMeta
		of.ObjectMeta = *metadata.DeepCopy()
		of.Taints, of.ReadinessGates = slices.Clone(template.Taints), slices.Clone(template.ReadinessGates)
		of.Spec.Taints, of.Spec.ReadinessGates = slices.Clone(template.Spec.Taints), slices.Clone(template.Spec.ReadinessGates)
		copied.Spec.MachineTemplate = &of
	}
	return &copied
}
