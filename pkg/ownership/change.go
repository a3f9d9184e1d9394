// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Change is one label, annotation or taint that a plan adds, replaces or removes.
type Change struct {
	// Place is the dotted path of the map or list, such as "metadata.labels".
	Place string
	// Name is the key, or "<key>:<effect>" of a taint.
	Name string
	// Value is what it becomes; nil where it is removed.
	Value any
}

// What tells whether it is a label, an annotation, a taint or a field.
func (c Change) What() string {
	switch {
	case strings.HasSuffix(c.Place, "taints"):
		return "taint"
	case strings.HasSuffix(c.Place, "labels"):
		return "label"
	case strings.HasSuffix(c.Place, "annotations"):
		return "annotation"
	default:
		return "field"
	}
}

// Entry names what changes.
func (c Change) Entry() inherit.Entry {
	return inherit.Entry{What: c.What(), Name: c.Name, Own: !c.inTemplate()}
}

func (c Change) inTemplate() bool {
	return strings.HasPrefix(c.Place, "spec.template.") || strings.HasPrefix(c.Place, "spec.machineTemplate.")
}

// String describes a change in the words of a warning, such as `label "team"`.
func (c Change) String() string {
	kind := c.What()
	if c.inTemplate() {
		kind = "template " + kind
	}
	return fmt.Sprintf("%s %q", kind, c.Name)
}

// Carried returns a function that reports whether a change adds what an object had already. It takes any number of changes.
func Carried(object inherit.Object) func(Change) bool {
	had := sets.New[Change]()
	for _, at := range places(object, inherit.Object{}) {
		for _, e := range at.current {
			had.Insert(at.change(e, e.value))
		}
	}
	return had.Has
}
