// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// referencePrefix is that of a document's references to its own schemas; there are no others.
const referencePrefix = "#/components/schemas/"

// layouts returns what the kinds of a group version have of a control plane's layout, by kind.
// Most kinds are no control planes and have none of the fields; nothing asks for those.
func layouts(document *spec3.OpenAPI, gv schema.GroupVersion) map[string]inherit.Layout {
	byKind := map[string]inherit.Layout{}
	if document.Components == nil {
		return byKind
	}
	schemas := schemas(document.Components.Schemas)
	for _, object := range schemas {
		var kinds []schema.GroupVersionKind
		if object == nil || object.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds) != nil {
			continue // the schema of a part of an object, as most are
		}
		has := func(path ...string) bool { return schemas.has(object, path) }
		for _, gvk := range kinds {
			if gvk.GroupVersion() == gv {
				byKind[gvk.Kind] = inherit.ControlPlaneLayout(gvk.Version, has)
			}
		}
	}
	return byKind
}

// schemas are those of a document, by the names that references use.
type schemas map[string]*spec.Schema

// has reports whether we can write a field of an object without losing it or taking more than our own part of it.
func (s schemas) has(object *spec.Schema, path []string) bool {
	field := s.find(object, path)
	switch name := path[len(path)-1]; name {
	case "taints":
		return isListBy(field, "key", "effect")
	case "metadata":
		// An object that is only named, as in CRDs of old, keeps nothing.
		return len(s.find(object, slices.Concat(path, []string{"labels"}))) > 0 &&
			len(s.find(object, slices.Concat(path, []string{"annotations"}))) > 0
	default:
		if key := inherit.FieldOf(name).ListKey(); key != "" {
			return isListBy(field, key)
		}
		return len(field) > 0
	}
}

// find returns the schemas that a field must match, or none if it is not declared. It does not look into maps that
// server-side apply treats as one value: an apply of a part of such a map owns and replaces all of it.
func (s schemas) find(object *spec.Schema, path []string) []*spec.Schema {
	level := s.parts(object, sets.New[string]())
	for _, name := range path {
		var next []*spec.Schema
		for _, part := range level {
			if property, ok := part.Properties[name]; ok {
				next = append(next, s.parts(&property, sets.New[string]())...)
			}
		}
		if slices.ContainsFunc(next, isAtomicMap) {
			return nil
		}
		level = next
	}
	return level
}

// parts returns a schema and all that it stands for or combines. followed are the references on the way here: a document
// may be of any aggregated API server, and references may run in a circle.
func (s schemas) parts(of *spec.Schema, followed sets.Set[string]) []*spec.Schema {
	parts := []*spec.Schema{of}
	name, isReference := strings.CutPrefix(of.Ref.String(), referencePrefix)
	if target := s[name]; isReference && target != nil && !followed.Has(name) {
		parts = append(parts, s.parts(target, followed.Insert(name))...)
	}
	for i := range of.AllOf {
		parts = append(parts, s.parts(&of.AllOf[i], followed)...)
	}
	return parts
}

// isListBy reports whether a field is a list whose items have owners of their own, told apart by exactly these keys.
// An apply of an item to any other kind of list owns the whole list.
func isListBy(field []*spec.Schema, keys ...string) bool {
	return slices.ContainsFunc(field, func(part *spec.Schema) bool {
		listType, _ := part.Extensions.GetString("x-kubernetes-list-type")
		listKeys, _ := part.Extensions.GetStringSlice("x-kubernetes-list-map-keys")
		return listType == "map" && sets.New(listKeys...).Equal(sets.New(keys...))
	})
}

func isAtomicMap(part *spec.Schema) bool {
	mapType, _ := part.Extensions.GetString("x-kubernetes-map-type")
	return mapType == "atomic"
}
