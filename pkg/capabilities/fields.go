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

// referencePrefix is the prefix of all references in a document: they refer to its own schemas.
const referencePrefix = "#/components/schemas/"

// layouts returns the control plane layouts of the kinds of a group version, by kind. Most kinds are no control planes and have none of the
// fields; no caller reads their layouts.
func layouts(document *spec3.OpenAPI, gv schema.GroupVersion) map[string]inherit.Layout {
	byKind := map[string]inherit.Layout{}
	if document.Components == nil {
		return byKind
	}
	schemas := schemas(document.Components.Schemas)
	for _, object := range schemas {
		var kinds []schema.GroupVersionKind
		if object == nil || object.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds) != nil {
			continue // the schema of a part of an object, as most schemas are
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

// schemas has the schemas of a document, by the names that references use.
type schemas map[string]*spec.Schema

// has reports whether Heirloom can write a field of an object such that the API server stores it, and Heirloom owns no more than its own
// part.
func (s schemas) has(object *spec.Schema, path []string) bool {
	field := s.find(object, path)
	switch name := path[len(path)-1]; name {
	case "taints":
		return isListBy(field, "key", "effect")
	case "metadata":
		// An object without properties, as in old CRDs, stores nothing.
		return len(s.find(object, slices.Concat(path, []string{"labels"}))) > 0 &&
			len(s.find(object, slices.Concat(path, []string{"annotations"}))) > 0
	default:
		if key := inherit.FieldOf(name).ListKey(); key != "" {
			return isListBy(field, key)
		}
		return len(field) > 0
	}
}

// find returns the schemas that a field must match, or none if the field is not declared. It does not look into atomic maps: an apply of a
// part of an atomic map owns and replaces the whole map.
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

// parts returns a schema with all schemas that it refers to or combines. followed has the references on the way to it: the document may
// come from any aggregated API server, and its references may form a cycle.
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

// isListBy reports whether a field is a list whose items have separate owners and are identified by exactly these keys. An apply of an item
// to any other kind of list owns the whole list.
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
