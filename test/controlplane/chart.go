// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DecodeObjects returns the objects of a YAML file with one document for each object.
func DecodeObjects(manifest string) ([]unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	var objects []unstructured.Unstructured
	for {
		var object unstructured.Unstructured
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		// A template whose condition is false leaves an empty document.
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// Apply applies objects by server-side apply, in their order; RenderChart returns them in the order of "helm install".
func Apply(ctx context.Context, c client.Client, objects []unstructured.Unstructured) error {
	for i := range objects {
		// The client writes the answer into its argument, and the objects are the caller's.
		object := objects[i].DeepCopy()
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("helm"), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}
