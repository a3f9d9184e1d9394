// SPDX-License-Identifier: Apache-2.0

// Package inherit holds the inheritance rules of docs/design.md §1: given an owner and a child, what the child inherits, and for each
// entry that a rule leaves out, why.
//
// The package is pure: no client, no context, no logger, no clock. Webhooks, loop and plugin call the same rules, so they agree by
// construction. Where to find what:
//
//	rules 1-3      topology.go    ClusterClass and Cluster topology → control plane, MachineDeployment, MachinePool
//	rules 4-6, 8, 9  machine.go   templates → MachineSet, Machine, InfraMachine, BootstrapConfig
//	rules 11-13    node.go        Machine → Node; nodesource.go, record.go, eviction.go
//	for Nodes      sync.go        keys that a Cluster or a template names; facts.go: facts and the worker role
//	               gates.go       start-up gates; soften.go: NoExecute taints that wait for Pods
//	rule 14        capacity.go    what cluster-autoscaler is told of Nodes to come
//	left out       drop.go        which keys, and why; fit.go: what has no room
//	order          effective.go   a Node inherits what its Machine will have
//	fields         fields.go      in-place fields, and where they are
//	skipped        skip.go        objects that are paused, being deleted or opted out
//	identity       nodesource.go  which Machine a Node is
package inherit

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// The sorts of entries.
const (
	labelKey      = "label"
	annotationKey = "annotation"
	taintKey      = "taint"
	fieldKey      = "field"
)

// Entry names one label, annotation, taint or in-place field of an object that inherits.
type Entry struct {
	What string // label, annotation, taint or field
	// Name is the key, "<key>:<effect>" of a taint, the name of a field, and the type of a readiness gate's condition.
	Name string
	Own  bool // at the object's top, not in its Machine template
}

// TaintEntry names a taint.
func TaintEntry(id taint.ID) Entry { return Entry{What: taintKey, Name: id.String()} }

// Claim says what happens to an entry that the child has from another manager.
type Claim int

const (
	// Owned entries are as the owner declares them and replace another value.
	Owned Claim = iota
	// Default entries give way to the child's own value.
	Default
	// Yielding entries are Default, and Heirloom gives them up as soon as another manager also owns them.
	Yielding
)

// Content holds the inheritable entries at one place of an object: at its top, or in the Machine template inside it.
type Content struct {
	Labels      map[string]string
	Annotations map[string]string
	Taints      []clusterv1.MachineTaint
	Fields      Fields
	// Claims holds the annotations and taints that are not Owned, by key and by "<key>:<effect>".
	Claims map[string]Claim
}

// Object is the inheritable content of a whole object: what a child has or, as a result, what it inherits.
type Object struct {
	Layout   Layout   // where the object has all this; a result has none, since the child's counts
	Top      Content  // at metadata and spec
	Template *Content // in the object's Machine template, if it has one
}

// Template is what an owner of Machines declares for them.
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

// OfExternal returns what an InfraMachine or a BootstrapConfig has.
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

// WithYielding adds these annotations to the content, whose own annotations win.
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

// Value returns the value of an entry, and whether the content has it. A typed taint wins over an annotated one, of which what cannot be
// read is none. The propagation of a taint is not part of the value.
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

// TypedTaint reports whether the content has the taint "<key>:<effect>" as such, not by annotation.
func (c Content) TypedTaint(id string) bool {
	return slices.ContainsFunc(c.Taints, func(t clusterv1.MachineTaint) bool { return taint.MachineID(t).String() == id })
}

// TaintAnnotation returns the annotation by which the content has the taint "<key>:<effect>", or "" if it is typed or missing.
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

// filter returns a copy of the entries whose key is to be kept.
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

// ControlPlane is a control plane of any provider, trimmed to what Cluster API's contract says of it. It is only read.
type ControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ControlPlaneSpec `json:"spec,omitempty"`
}

// ControlPlaneSpec is the part of a control plane's spec that the contract names.
type ControlPlaneSpec struct {
	MachineTemplate *ControlPlaneMachineTemplate `json:"machineTemplate,omitempty"` // nil if it does not consist of Machines
}

// OfControlPlane returns the content that the control plane has. Its place differs between providers.
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
