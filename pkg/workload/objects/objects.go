// SPDX-License-Identifier: Apache-2.0

// Package objects writes what Heirloom keeps in workload clusters: it applies what differs from what is desired, and deletes
// what is there and not desired. What counts as a difference the caller says.
package objects

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/ownership"
)

// Changes are the writes that make what exists into what is desired, or those of them that have been made.
type Changes struct {
	// Apply are objects as they are desired, in that order.
	Apply []client.Object
	// Delete are existing objects that are not desired, the last first.
	Delete []client.Object
}

// Diff returns the changes. Every object must say its kind. What exists and carries all that is desired is not written.
func Diff(desired, existing []client.Object, carries func(has, wants client.Object) bool) Changes {
	before, wanted := map[objectID]client.Object{}, map[objectID]bool{}
	for _, object := range existing {
		before[identify(object)] = object
	}
	var changes Changes
	for _, object := range desired {
		wanted[identify(object)] = true
		if has, ok := before[identify(object)]; !ok || !carries(has, object) {
			changes.Apply = append(changes.Apply, object)
		}
	}
	for _, object := range slices.Backward(existing) {
		if !wanted[identify(object)] {
			changes.Delete = append(changes.Delete, object)
		}
	}
	return changes
}

// objectID tells objects apart.
type objectID struct {
	kind schema.GroupKind
	name types.NamespacedName
}

func identify(object client.Object) objectID {
	return objectID{kind: object.GetObjectKind().GroupVersionKind().GroupKind(), name: client.ObjectKeyFromObject(object)}
}

// Write makes the changes and returns those that it has made, also beside an error.
func (c Changes) Write(ctx context.Context, server client.Client) (made Changes, err error) {
	for _, object := range c.Apply {
		if err := Apply(ctx, server, object); err != nil {
			return made, fmt.Errorf("applying %s %s: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
		}
		made.Apply = append(made.Apply, object)
	}
	for _, object := range c.Delete {
		deleted, err := Delete(ctx, server, object, client.Preconditions{UID: ptr.To(object.GetUID())})
		if err != nil {
			return made, fmt.Errorf("deleting %s %s: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
		}
		if deleted {
			made.Delete = append(made.Delete, object)
		}
	}
	return made, nil
}

// Apply makes an object as it is desired, also where others have changed it.
func Apply(ctx context.Context, server client.Client, object client.Object, options ...client.ApplyOption) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Errorf("converting %T: %w", object, err)
	}
	config := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content})
	return server.Apply(ctx, config, append(options, client.FieldOwner(ownership.Manager), client.ForceOwnership)...)
}

// Delete deletes an object, and reports whether it was there.
func Delete(ctx context.Context, server client.Client, object client.Object, options ...client.DeleteOption) (bool, error) {
	err := server.Delete(ctx, object, options...)
	return err == nil, client.IgnoreNotFound(err)
}
