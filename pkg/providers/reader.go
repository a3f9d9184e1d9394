// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reader reads the kinds of providers, which no scheme has, from their cache, and all others from another.
type Reader struct {
	client.Reader
	Providers client.Reader
}

// Get implements client.Reader.
func (r Reader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return r.of(into).Get(ctx, key, into, options...)
}

// List implements client.Reader.
func (r Reader) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	return r.of(into).List(ctx, into, options...)
}

func (r Reader) of(object runtime.Object) client.Reader {
	switch object.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return r.Providers
	default:
		return r.Reader
	}
}
