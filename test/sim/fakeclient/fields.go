// SPDX-License-Identifier: Apache-2.0

package fakeclient

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// fieldSchema declares the maps and lists with keys of the inherited fields. Other fields have deduced types.
const fieldSchema = `
types:
- name: object
  map:
    fields: [{name: metadata, type: {namedType: metadata}}, {name: spec, type: {namedType: spec}}]
    elementType: {namedType: __untyped_deduced_}
- name: metadata
  map:
    fields: [{name: labels, type: {map: {elementType: {scalar: string}}}}, {name: annotations, type: {map: {elementType: {scalar: string}}}}]
    elementType: {namedType: __untyped_deduced_}
- name: spec
  map:
    fields:
    - {name: taints, type: {list: {elementType: {namedType: __untyped_deduced_}, elementRelationship: associative, keys: [effect, key]}}}
    - {name: template, type: {namedType: object}}
    - {name: machineTemplate, type: {namedType: object}}
    elementType: {namedType: __untyped_deduced_}
- name: __untyped_deduced_
  scalar: untyped
  list: {elementType: {namedType: __untyped_deduced_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_deduced_}, elementRelationship: separable}
`

// converter makes a fake client track field ownership as an API server with these fields does.
type converter struct{ object typed.ParseableType }

func newConverter() converter {
	parser, err := typed.NewParser(fieldSchema)
	if err != nil {
		panic(err) // the schema is constant
	}
	return converter{parser.Type("object")}
}

// ObjectToTyped implements managedfields.TypeConverter.
func (c converter) ObjectToTyped(object runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	return c.object.FromUnstructured(content, options...)
}

// TypedToObject implements managedfields.TypeConverter.
func (c converter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	content, ok := value.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("expected an object, got %T", value.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: content}, nil
}
