// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Owner is an object that declares entries for other objects.
type Owner interface {
	metav1.Object
	runtime.Object
}

// Ref is an object and its kind. If the object could not be read, Object has only its name.
type Ref struct {
	Kind   string
	Object Owner
}

// String names the object, "<kind> <namespace>/<name>", a Node "<kind> <name>".
func (r Ref) String() string {
	return r.Kind + " " + strings.TrimPrefix(r.Object.GetNamespace()+"/"+r.Object.GetName(), "/")
}

// Source is the place where an entry is declared: a warning or an Event asks users to edit it.
type Source struct {
	Ref
	// Field is a path in the object, such as spec.template.metadata.labels; empty for the object as a whole.
	Field string
}

// String returns "<kind> <namespace>/<name> (<field>)".
func (s Source) String() string {
	switch {
	case s.Object == nil:
		return "an unknown owner"
	case s.Field == "":
		return s.Ref.String()
	}
	return s.Ref.String() + " (" + s.Field + ")"
}

// Declaration is the content that an object of an owner chain declares for others, with its paths.
type Declaration struct {
	Ref
	Paths Paths // of the content
	Content
	// Unread says that the content is not known. The object then counts as the source of all entries that the objects below it inherit.
	Unread    bool
	Itself    bool   // the object is the child itself
	Whole     string // the field to name for every entry, if the single fields are not known
	Annotates bool   // the object's taints are inherited as annotations (rule 3)
	// Metadata, if not nil, declares the annotations at the top of a child that also has a Machine template: a MachineSet's own annotations
	// come from the metadata of its MachineDeployment (rule 5).
	Metadata *Content
}

// Sources are the declarations from which an object inherits, from the top of the owner chain: a change further down would be undone.
type Sources struct {
	All []Declaration
	Err error // the errors of objects that could not be read
}

// Of returns the source of an entry: the first object that declares it, or an owner above that object that could not be read. If no object
// is known to declare the entry, the source is an object that could not be read, or else the last object. The source is empty if there are
// no objects.
func (s Sources) Of(e Entry) Source {
	at := slices.IndexFunc(s.All, func(d Declaration) bool { return d.Declares(e) })
	unread := slices.IndexFunc(s.All, func(d Declaration) bool { return d.Unread })
	switch {
	case len(s.All) == 0:
		return Source{}
	case unread >= 0 && (at < 0 || unread < at && !s.All[at].Itself):
		at = unread
	case at < 0:
		at = len(s.All) - 1
	}
	return Source{s.All[at].Ref, cmp.Or(s.All[at].Whole, s.All[at].field(e))}
}

// Declares reports whether the object is known to declare an entry.
func (d Declaration) Declares(e Entry) bool {
	content := d.Content
	if d.Metadata != nil && e.Own && e.What == annotationKey {
		content = *d.Metadata
	}
	if _, declared := content.Value(e); declared {
		return true
	}
	return e.What == annotationKey && d.Annotates && has(taint.ToAnnotations(d.Taints), e.Name)
}

// field returns the path of an entry that the object declares, or would declare.
func (d Declaration) field(e Entry) string {
	metadata := strings.Join(d.Paths.Metadata, ".")
	labels, annotations := strings.Join(below(d.Paths.Metadata, "labels"), "."), strings.Join(below(d.Paths.Metadata, "annotations"), ".")
	taints := cmp.Or(strings.Join(d.Paths.Taints, "."), annotations)
	switch {
	case e.What == labelKey:
		return labels
	case e.What == annotationKey && d.Metadata != nil && e.Own:
		return "metadata.annotations"
	case e.What == annotationKey && has(d.Annotations, e.Name):
		return annotations
	case e.What == annotationKey && d.Annotates && len(d.Taints) > 0 && e.Name != CapacityLabelsAnnotation:
		return taints
	case e.What == annotationKey: // rule 14's annotations come from the template's labels and taints
		return cmp.Or(map[string]string{CapacityLabelsAnnotation: labels, CapacityTaintsAnnotation: taints}[e.Name], annotations)
	case e.What == taintKey:
		if name := d.TaintAnnotation(e.Name); name != "" {
			return annotations + "[" + name + "]"
		}
		return taints
	case e.What == fieldKey:
		return cmp.Or(strings.Join(d.Paths.Fields[FieldOf(e.Name)], "."), metadata)
	}
	return metadata
}

// mostSaid limits the problems that are reported one by one: warnings and Events have little room, and an owner may have any number of
// problems.
const mostSaid = 10

// Located returns an error that says where each problem is declared, and how many more problems there are. The source comes first, because
// API servers cut long warnings off. A problem that is not about a single entry names the metadata of the last source.
func (s Sources) Located(err error) error {
	var all []error
	problems := Problems(err)
	for i, problem := range problems {
		if i == mostSaid {
			all = append(all, fmt.Errorf("%d more", len(problems)-i))
			break
		}
		if source := s.Of(EntryOf(problem)); source.Object != nil {
			problem = fmt.Errorf("%s: %w", source, problem)
		}
		all = append(all, problem)
	}
	return errors.Join(all...)
}

// EntryOf returns the entry that an error is about. It is empty if the error is not about a single entry.
func EntryOf(err error) Entry {
	var dropped Dropped
	errors.As(err, &dropped)
	return dropped.Entry
}
