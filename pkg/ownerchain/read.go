// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reference names an object and the type that it is read into.
type reference struct {
	into reflect.Type
	// gvk is empty for types that are of one kind.
	gvk schema.GroupVersionKind
	key client.ObjectKey
}

func refer(key client.ObjectKey, into client.Object) reference {
	to := reference{into: reflect.TypeOf(into), key: key}
	switch into.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		to.gvk = into.GetObjectKind().GroupVersionKind()
	}
	return to
}

// empty returns what the object can be read into.
func (r reference) empty() client.Object {
	object := reflect.New(r.into.Elem()).Interface().(client.Object) //nolint:forcetypeassert // it is the type of one
	if !r.gvk.Empty() {
		object.GetObjectKind().SetGroupVersionKind(r.gvk)
	}
	return object
}

// read is a Get that has been asked for. Its result is there once done is closed, and nothing changes it then.
type read struct {
	done   chan struct{}
	object client.Object
	err    error
}

func refusedRead() *read {
	refused := &read{done: make(chan struct{}), err: errors.New("too many reads")}
	close(refused.done)
	return refused
}

// wait waits for the result, and returns it. It is not to be changed.
func (r *read) wait(ctx context.Context) (client.Object, error) {
	select {
	case <-r.done:
		return r.object, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the API server: %w", ctx.Err())
	}
}

// copyTo waits for the result, and copies it. An option of the caller can make the copy shallow, as for a read from a cache.
func (r *read) copyTo(ctx context.Context, into client.Object, options ...client.GetOption) error {
	object, err := r.wait(ctx)
	if err != nil {
		return err
	}
	asked := (&client.GetOptions{}).ApplyOptions(options)
	if !ptr.Deref(asked.UnsafeDisableDeepCopy, false) {
		object = object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // it is a copy of one
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object).Elem())
	return nil
}

// asker is a reader that can be asked for several objects before the first of them is there.
type asker interface {
	ask(ctx context.Context, to reference) *read
}

// asking makes an asker of any reader.
func asking(reader client.Reader) asker {
	if able, ok := reader.(asker); ok {
		return able
	}
	return &Shared{Reader: reader}
}
