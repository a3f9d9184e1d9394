// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// fieldSchema says what are fields, maps and lists with keys, as far as objects inherit. All else is as it looks.
const fieldSchema = `
types:
- name: object
  map:
    fields:
    - {name: metadata, type: {namedType: metadata}}
    - {name: spec, type: {namedType: spec}}
    elementType: {namedType: __untyped_deduced_}
- name: metadata
  map:
    fields:
    - {name: labels, type: {map: {elementType: {scalar: string}}}}
    - {name: annotations, type: {map: {elementType: {scalar: string}}}}
    elementType: {namedType: __untyped_deduced_}
- name: spec
  map:
    fields:
    - {name: taints, type: {namedType: taints}}
    - {name: template, type: {namedType: object}}
    - {name: machineTemplate, type: {namedType: object}}
    elementType: {namedType: __untyped_deduced_}
- name: taints
  list: {elementType: {namedType: taint}, elementRelationship: associative, keys: [effect, key]}
- name: taint
  map:
    fields:
    - {name: key, type: {scalar: string}}
    - {name: value, type: {scalar: string}}
    - {name: effect, type: {scalar: string}}
    - {name: propagation, type: {scalar: string}}
    elementType: {namedType: __untyped_deduced_}
- name: __untyped_atomic_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
- name: __untyped_deduced_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_deduced_}, elementRelationship: separable}
`

// converter makes the fake API server know who owns which fields.
type converter struct{ object typed.ParseableType }

func newConverter(t *testing.T) converter {
	t.Helper()
	parser, err := typed.NewParser(fieldSchema)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return converter{parser.Type("object")}
}

// ObjectToTyped implements managedfields.TypeConverter.
func (c converter) ObjectToTyped(object runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	prune(content)
	return c.object.FromUnstructured(content, options...)
}

// prune drops empty maps, at any depth. Go types have them where nothing was said.
func prune(content map[string]any) {
	for key, value := range content {
		if inner, ok := value.(map[string]any); ok {
			if prune(inner); len(inner) == 0 {
				delete(content, key)
			}
		}
	}
}

// TypedToObject implements managedfields.TypeConverter.
func (c converter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	content, ok := value.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("expected an object, got %T", value.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: content}, nil
}
