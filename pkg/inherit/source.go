// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Entry names one label, annotation, taint or in-place field of an object that inherits.
type Entry struct {
	// What is label, annotation, taint or field.
	What string
	// Name is the key, "<key>:<effect>" of a taint, the name of a field, and the type of a readiness gate's condition.
	Name string
	// Own says that the entry is in the metadata of the object itself, not in its Machine template.
	Own bool
}

// TaintEntry names a taint.
func TaintEntry(id taint.ID) Entry {
	return Entry{What: taintKey, Name: id.String()}
}

// Entry names a Node's key as the Machine and those above it declare it.
func (k NodeKey) Entry() Entry {
	name := k.Name
	if t, err := taint.Parse(name); err == nil && k.What == taintKey {
		name = taint.IDOf(t).String()
	}
	return Entry{What: k.What, Name: name}
}

// Owner is an object that declares something for others.
type Owner interface {
	metav1.Object
	runtime.Object
}

// Ref is an object of that kind. If it could not be read, the Object has only its name.
type Ref struct {
	Kind   string
	Object Owner
}

// String names the object, "<kind> <namespace>/<name>".
func (r Ref) String() string {
	return r.Kind + " " + r.Object.GetNamespace() + "/" + r.Object.GetName()
}

// Same reports whether both name the same object.
func (r Ref) Same(other Ref) bool {
	return r.Kind == other.Kind && r.Object.GetNamespace() == other.Object.GetNamespace() && r.Object.GetName() == other.Object.GetName()
}

// Source is where an entry is declared: what a warning or an Event tells you to edit.
type Source struct {
	Ref
	// Field is a path in that object, such as spec.template.metadata.labels; empty for the object as a whole.
	Field string
}

// String returns "<kind> <namespace>/<name> (<field>)".
func (s Source) String() string {
	switch {
	case s.Object == nil:
		return "an owner that is not known"
	case s.Field == "":
		return s.Ref.String()
	}
	return s.Ref.String() + " (" + s.Field + ")"
}

// Declaration is what one object of an owner chain declares for others, and where it does.
type Declaration struct {
	Ref
	// Paths lead to what the object declares.
	Paths Paths
	Content
	// Unread says that the content is not known. The object then counts as the source of all that those below it have from an owner.
	Unread bool
	// Itself says that this is the object that inherits.
	Itself bool
	// Whole is the field to name for every entry, if the single fields are not known.
	Whole string
	// Annotates says that the object's taints are inherited as annotations (rule 3).
	Annotates bool
	// Metadata declares the annotations in the metadata of an object that also has a Machine template: those of a MachineSet
	// come from the metadata of its MachineDeployment (rule 5).
	Metadata *Content
}

// Sources are the objects that declare what an object inherits, from the top of the owner chain: a change further down would be
// undone.
type Sources struct {
	All []Declaration
	// Err says what could not be read.
	Err error
}

// Of returns where an entry is declared. If no object is known to declare it, the source is one that could not be read, or else the
// last. The source is empty if there are no objects.
func (s Sources) Of(e Entry) Source {
	at := s.indexOf(e)
	if at < 0 {
		return Source{}
	}
	found := s.All[at]
	return Source{found.Ref, found.field(e)}
}

// Path returns the objects through which an entry reaches an object that inherits it: the one that declares it, and those between
// the two, from the top. A Cluster and its ClusterClass both declare for the objects of a topology, so neither is between.
func (s Sources) Path(e Entry, object Ref) []Ref {
	at := s.indexOf(e)
	if at < 0 {
		return nil
	}
	var path []Ref
	for i, d := range s.All[at:] {
		if d.Same(object) {
			break
		}
		if i == 0 || d.Kind != classKind {
			path = append(path, d.Ref)
		}
	}
	return path
}

// indexOf returns which of the objects declares an entry, or -1 if there are none.
func (s Sources) indexOf(e Entry) int {
	known := slices.IndexFunc(s.All, func(d Declaration) bool { return d.Declares(e) })
	unread := slices.IndexFunc(s.All, func(d Declaration) bool { return d.Unread })
	switch {
	case unread >= 0 && (known < 0 || unread < known && !s.All[known].Itself):
		return unread
	case known >= 0:
		return known
	}
	return len(s.All) - 1
}

// Top is where you change what the object and those like it inherit: the uppermost object of the chain, with all that it
// declares. The source is empty if there are no objects.
func (s Sources) Top() Source {
	if len(s.All) == 0 {
		return Source{}
	}
	top, field := s.All[0], s.All[0].Whole
	if metadata := top.Paths.Metadata; field == "" && len(metadata) > 0 {
		field = strings.Join(metadata[:len(metadata)-1], ".")
	}
	return Source{top.Ref, field}
}

// Declares reports whether the object is known to declare an entry.
func (d Declaration) Declares(e Entry) bool {
	switch e.What {
	case labelKey:
		return has(d.Labels, e.Name)
	case annotationKey:
		if d.Metadata != nil && e.Own {
			return has(d.Metadata.Annotations, e.Name)
		}
		return has(d.Annotations, e.Name) || d.Annotates && has(taint.ToAnnotations(d.Taints), e.Name)
	case taintKey:
		return d.TypedTaint(e.Name) || d.annotates(e.Name) != ""
	case fieldKey:
		return d.Fields.declare(e.Name)
	}
	return false
}

// field returns the path of an entry that the object declares, or would declare.
func (d Declaration) field(e Entry) string {
	labels, annotations := d.metadata("labels"), d.metadata("annotations")
	taints, metadata := cmp.Or(strings.Join(d.Paths.Taints, "."), annotations), strings.Join(d.Paths.Metadata, ".")
	switch {
	case d.Whole != "":
		return d.Whole
	case e.What == labelKey:
		return labels
	case e.What == annotationKey:
		return d.annotation(e, labels, annotations, taints)
	case e.What == taintKey:
		if name := d.annotates(e.Name); name != "" && !d.TypedTaint(e.Name) {
			return annotations + "[" + name + "]"
		}
		return taints
	case e.What == fieldKey:
		return cmp.Or(strings.Join(d.Paths.Fields[FieldOf(e.Name)], "."), metadata)
	}
	return metadata
}

// annotation returns the path of an annotation. Rule 14's annotations come from the template's labels and taints.
func (d Declaration) annotation(e Entry, labels, annotations, taints string) string {
	switch {
	case d.Metadata != nil && e.Own:
		return "metadata.annotations"
	case has(d.Annotations, e.Name):
		return annotations
	case e.Name == CapacityLabelsAnnotation:
		return labels
	case e.Name == CapacityTaintsAnnotation, d.Annotates && len(d.Taints) > 0:
		return taints
	}
	return annotations
}

func (d Declaration) metadata(name string) string {
	return strings.Join(append(slices.Clone(d.Paths.Metadata), name), ".")
}

// annotates returns the annotation by which the object declares the taint "<key>:<effect>", or "".
func (d Declaration) annotates(id string) string {
	for _, name := range []string{taint.AlwaysAnnotation, taint.InitializeAnnotation} {
		declared, _ := taint.FromAnnotations(map[string]string{name: d.Annotations[name]})
		if _, ok := findTaint(declared, id); ok {
			return name
		}
	}
	return ""
}

// declare reports whether a field of this name in any version of the API, or a readiness gate of this type, is declared.
func (f Fields) declare(name string) bool {
	if field := FieldOf(name); field != ReadinessGates {
		return f.Seconds[field] != nil
	}
	return slices.ContainsFunc(f.ReadinessGates, func(gate clusterv1.MachineReadinessGate) bool { return gate.ConditionType == name })
}
