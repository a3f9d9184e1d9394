// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"cmp"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Entry names one label, annotation, taint or in-place field of an object that inherits.
type Entry struct {
	// What is label, annotation, taint or field.
	What string
	// Name is the key, "<key>:<effect>" of a taint, the name of a field, and the type of a readiness gate's condition.
	Name string
	// Own says that it is in the metadata of the object itself, not in its Machine template.
	Own bool
}

// Entry names a Node's key as the Machine and those above it declare it.
func (k NodeKey) Entry() Entry {
	name := k.Name
	if t, err := taint.Parse(name); err == nil && k.What == taintKey {
		name = taint.IDOf(t).String()
	}
	return Entry{What: k.What, Name: name}
}

// Source is where an entry is declared: what a warning or an Event tells you to edit.
type Source struct {
	// Object is "<kind> <namespace>/<name>".
	Object string
	// Field is a path in that object, such as spec.template.metadata.labels.
	Field string
}

// String returns "<kind> <namespace>/<name> (<field>)".
func (s Source) String() string {
	return s.Object + " (" + s.Field + ")"
}

// Declaration is what one object of an owner chain declares for others, and where it does.
type Declaration struct {
	// Object is "<kind> <namespace>/<name>".
	Object string
	// Paths lead to what the object declares.
	Paths capi.Paths
	Content
	// Unread says that the content is not known. The object is taken to declare what those below it have from an owner.
	Unread bool
	// Itself says that it is the object that inherits.
	Itself bool
	// Whole is the field that stands for all others, where it is not known which of them there are.
	Whole string
	// Annotates says that the object's taints are inherited as annotations (rule 3).
	Annotates bool
}

// Sources are the objects that declare what an object inherits. The top of the owner chain is the first: a change further
// down would be undone.
type Sources struct {
	All []Declaration
	// Own replaces All for annotations in the metadata of an object that also has a Machine template: those of a MachineSet
	// come from the metadata of its MachineDeployment (rule 5).
	Own []Declaration
}

// Of returns where an entry is declared. What nobody is found to declare is taken to come from an object that is not known, or
// else to be declared by the last. The source is empty where there are no objects.
func (s Sources) Of(e Entry) Source {
	all := s.All
	if e.Own && e.What == annotationKey && s.Own != nil {
		all = s.Own
	}
	if len(all) == 0 {
		return Source{}
	}
	known := slices.IndexFunc(all, func(d Declaration) bool { return d.declares(e) })
	unread := slices.IndexFunc(all, func(d Declaration) bool { return d.Unread })
	declarer := all[len(all)-1]
	switch {
	case unread >= 0 && (known < 0 || unread < known && !all[known].Itself):
		declarer = all[unread]
	case known >= 0:
		declarer = all[known]
	}
	return Source{Object: declarer.Object, Field: declarer.field(e)}
}

// declares reports whether the object is known to declare an entry.
func (d Declaration) declares(e Entry) bool {
	switch e.What {
	case labelKey:
		return has(d.Labels, e.Name)
	case annotationKey:
		return has(d.Annotations, e.Name) || d.Annotates && has(taint.ToAnnotations(d.Taints), e.Name)
	case taintKey:
		return d.types(e.Name) || d.annotates(e.Name) != ""
	case fieldKey:
		return d.Fields.declare(e.Name)
	}
	return false
}

// field returns the path of an entry that the object declares, or would declare.
func (d Declaration) field(e Entry) string {
	if d.Whole != "" {
		return d.Whole
	}
	taints, annotations := strings.Join(d.Paths.Taints, "."), d.metadata("annotations")
	switch e.What {
	case labelKey:
		return d.metadata("labels")
	case annotationKey:
		switch { // rule 14 repeats what the template declares
		case e.Name == CapacityLabelsAnnotation && !has(d.Annotations, e.Name):
			return d.metadata("labels")
		case e.Name == CapacityTaintsAnnotation && !has(d.Annotations, e.Name), d.Annotates && !has(d.Annotations, e.Name) && len(d.Taints) > 0:
			return cmp.Or(taints, annotations)
		}
		return annotations
	case taintKey:
		if name := d.annotates(e.Name); name != "" && !d.types(e.Name) {
			return annotations + "[" + name + "]"
		}
		return cmp.Or(taints, annotations)
	case fieldKey:
		return cmp.Or(strings.Join(d.Paths.Fields[capi.FieldOf(e.Name)], "."), strings.Join(d.Paths.Metadata, "."))
	}
	return strings.Join(d.Paths.Metadata, ".")
}

func (d Declaration) metadata(name string) string {
	return strings.Join(append(slices.Clone(d.Paths.Metadata), name), ".")
}

// types reports whether the object declares the taint "<key>:<effect>" as such.
func (d Declaration) types(id string) bool {
	return slices.ContainsFunc(d.Taints, func(t clusterv1.MachineTaint) bool { return taint.MachineID(t).String() == id })
}

// annotates returns the annotation by which the object declares the taint "<key>:<effect>", or "".
func (d Declaration) annotates(id string) string {
	for _, name := range []string{taint.AlwaysAnnotation, taint.InitializeAnnotation} {
		declared, _ := taint.FromAnnotations(map[string]string{name: d.Annotations[name]})
		if slices.ContainsFunc(declared, func(t clusterv1.MachineTaint) bool { return taint.MachineID(t).String() == id }) {
			return name
		}
	}
	return ""
}

// declare reports whether a field is declared that has this name in any version of the API, or a readiness gate of this type.
func (f Fields) declare(name string) bool {
	if field := capi.FieldOf(name); field != capi.ReadinessGates {
		return f.Seconds[field] != nil
	}
	return slices.ContainsFunc(f.ReadinessGates, func(gate clusterv1.MachineReadinessGate) bool { return gate.ConditionType == name })
}
