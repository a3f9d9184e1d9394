// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldManager is the field manager of "helm install".
const fieldManager = "helm"

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

// Apply applies objects by server-side apply, each object after the objects that it needs.
func Apply(ctx context.Context, c client.Client, objects []unstructured.Unstructured) error {
	sorted := slices.Clone(objects)
	slices.SortStableFunc(sorted, func(a, b unstructured.Unstructured) int {
		return cmp.Compare(rank(a.GetKind()), rank(b.GetKind()))
	})
	for i := range sorted {
		// The client writes the answer into its argument, and the objects are the caller's.
		object := sorted[i].DeepCopy()
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(fieldManager), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

// rank orders kinds: first namespaces and CRDs, last the webhooks and bindings that begin to change or refuse requests.
func rank(kind string) int {
	switch kind {
	case "Namespace":
		return 0
	case "CustomResourceDefinition":
		return 1
	case "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy":
		return 3
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
		"ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding":
		return 4
	default:
		return 2
	}
}
