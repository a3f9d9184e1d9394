// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Uncopied reads objects from a cache without copying them. Admission asks for up to four owners for each request and changes none of
// them; with copies, the work would grow with the owners' size (BenchmarkWebhookCPU). What it returns shares its maps and lists with the
// cache and must not be changed, as the tests of package webhooks make sure.
//
// Objects that are not of a type of their own are copied: their kind is part of their content.
type Uncopied struct {
	client.Reader
	// Scheme knows the kinds of the objects. A cache only sets the kind of a copy.
	Scheme *runtime.Scheme
}

// Get implements client.Reader.
func (r Uncopied) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	switch into.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata:
		return r.Reader.Get(ctx, key, into, options...)
	}
	if err := r.Reader.Get(ctx, key, into, append(options[:len(options):len(options)], client.UnsafeDisableDeepCopy)...); err != nil {
		return err
	}
	return r.setKind(into)
}

// List implements client.Reader.
func (r Uncopied) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	switch into.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadataList:
		return r.Reader.List(ctx, into, options...)
	}
	if err := r.Reader.List(ctx, into, append(options[:len(options):len(options)], client.UnsafeDisableDeepCopy)...); err != nil {
		return err
	}
	// The items are no copies, but their structs are: the list has been made for this call.
	if err := meta.EachListItem(into, r.setKind); err != nil {
		return fmt.Errorf("setting the kind of %T: %w", into, err)
	}
	return nil
}

func (r Uncopied) setKind(object runtime.Object) error {
	gvk, err := apiutil.GVKForObject(object, r.Scheme)
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	return nil
}
