// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DigestAnnotation is a hash of what was applied. An apply removes what the previous one added and it does not; the digest
// tells that there is something to remove. What others have added does not change it.
const DigestAnnotation = "heirloom.dev/digest"

// digested returns the objects as they are applied, with their digests.
func digested(objects ...client.Object) ([]*unstructured.Unstructured, error) {
	all := make([]*unstructured.Unstructured, 0, len(objects))
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("converting %T %s: %w", object, object.GetName(), err)
		}
		// Maps are marshalled in the order of their keys.
		text, err := json.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("marshalling %T %s: %w", object, object.GetName(), err)
		}
		sum := sha256.Sum256(text)
		if err := unstructured.SetNestedField(content, hex.EncodeToString(sum[:]), "metadata", "annotations", DigestAnnotation); err != nil {
			return nil, fmt.Errorf("annotating %T %s: %w", object, object.GetName(), err)
		}
		all = append(all, &unstructured.Unstructured{Object: content})
	}
	return all, nil
}

// carries reports whether a value has all of another one: every entry of its maps and, at the same place, every item of its
// lists. An empty map may be missing, because the API server may have dropped it. Others may add items that have names, and an
// apply keeps those; any other list is one value, which an apply restores. So is a selector: with one label more it would
// select nothing. whole says that the values are part of a selector.
func carries(has, wants any, whole bool) bool {
	switch wants := wants.(type) {
	case map[string]any:
		m, ok := has.(map[string]any)
		for key, value := range wants {
			if !carries(m[key], value, whole || strings.HasSuffix(strings.ToLower(key), "selector")) {
				return false
			}
		}
		if whole && len(m) > len(wants) {
			return false
		}
		return ok || has == nil && len(wants) == 0
	case []any:
		list, _ := has.([]any)
		if len(list) > len(wants) && !named(wants) {
			return false
		}
		for i, value := range wants {
			if i >= len(list) || !carries(list[i], value, whole) {
				return false
			}
		}
		return true
	default:
		return has == wants
	}
}

// named reports whether every item of a list has a name.
func named(list []any) bool {
	return !slices.ContainsFunc(list, func(item any) bool {
		fields, ok := item.(map[string]any)
		return !ok || fields["name"] == nil
	})
}
