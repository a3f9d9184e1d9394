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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DigestAnnotation is a hash of what was applied. An apply takes away again what the one before it brought; the digest
// tells that there is something to take away, and what somebody else has added does not change it.
const DigestAnnotation = "heirloom.dev/digest"

// Changes are the writes that make what exists into what is desired.
type Changes struct {
	// Apply are server-side apply configurations, in the order in which they are desired.
	Apply []*unstructured.Unstructured
	// Delete are existing objects that are not desired, the last first.
	Delete []client.Object
}

// Diff returns the changes. Every object must say its kind. What exists and carries all that is desired is not written.
func Diff(desired, existing []client.Object) (Changes, error) {
	var changes Changes
	before := map[objectID]*unstructured.Unstructured{}
	for _, object := range existing {
		content, err := contentFor(object)
		if err != nil {
			return Changes{}, err
		}
		before[identify(object)] = content
	}
	wanted := map[objectID]bool{}
	for _, object := range desired {
		wanted[identify(object)] = true
		config, err := applyConfiguration(object)
		if err != nil {
			return Changes{}, err
		}
		if has, ok := before[identify(object)]; !ok || !carries(has.Object, config.Object, false) {
			changes.Apply = append(changes.Apply, config)
		}
	}
	for _, object := range slices.Backward(existing) {
		if !wanted[identify(object)] {
			changes.Delete = append(changes.Delete, object)
		}
	}
	return changes, nil
}

// objectID tells objects apart.
type objectID struct {
	kind schema.GroupKind
	name types.NamespacedName
}

func identify(object client.Object) objectID {
	return objectID{kind: object.GetObjectKind().GroupVersionKind().GroupKind(), name: client.ObjectKeyFromObject(object)}
}

// applyConfiguration returns the object as it is applied, with its digest.
func applyConfiguration(object client.Object) (*unstructured.Unstructured, error) {
	config, err := contentFor(object)
	if err != nil {
		return nil, err
	}
	// Maps are marshalled in the order of their keys.
	text, err := json.Marshal(config.Object)
	if err != nil {
		return nil, fmt.Errorf("marshalling %T %s: %w", object, object.GetName(), err)
	}
	sum := sha256.Sum256(text)
	annotations := config.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[DigestAnnotation] = hex.EncodeToString(sum[:])
	config.SetAnnotations(annotations)
	return config, nil
}

func contentFor(object client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("converting %T %s: %w", object, object.GetName(), err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// carries reports whether a value has all of another one: every entry of its maps and, at the same place, every item of its
// lists. An empty map is had by anything that could hold it, because it may have been dropped. Others may add items that
// have names, and an apply leaves those there; any other list is one value, which an apply puts back. So is a selector: with
// a label more it would select nothing. whole says that the values are part of one.
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
