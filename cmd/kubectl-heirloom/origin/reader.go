// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// patience bounds one read. The owner chain bounds it by what API servers wait for a webhook, and people wait longer.
const patience = 10 * time.Second

// liveReader is an API server in place of the caches that an owner chain reads: it lists by their indexes, and objects have their
// kind.
type liveReader struct {
	client.Client
	// lists are all objects of a type.
	lists map[reflect.Type][]runtime.Object
}

// Get implements client.Reader.
func (r liveReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := r.Client.Get(ctx, key, object, options...); err != nil {
		return err
	}
	return r.setKind(object)
}

func (r liveReader) setKind(object runtime.Object) error {
	gvk, err := r.GroupVersionKindFor(object)
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	return nil
}

// List implements client.Reader. An API server does not know the caches' indexes, so that all objects are read, once.
func (r liveReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	of := reflect.TypeOf(list)
	if _, read := r.lists[of]; !read {
		if err := r.Client.List(ctx, list); err != nil {
			return err
		}
		all, err := meta.ExtractList(list)
		if err != nil {
			return fmt.Errorf("reading %T: %w", list, err)
		}
		for _, object := range all {
			if err := r.setKind(object); err != nil {
				return err
			}
		}
		r.lists[of] = all
	}
	by := (&client.ListOptions{}).ApplyOptions(options)
	var found []runtime.Object
	for _, object := range r.lists[of] {
		if one, ok := object.(client.Object); ok && matches(one, by) {
			found = append(found, object)
		}
	}
	return meta.SetList(list, found)
}

// matches reports whether an object is in a namespace and in the indexes that are asked for.
func matches(object client.Object, by *client.ListOptions) bool {
	if by.Namespace != "" && by.Namespace != object.GetNamespace() {
		return false
	}
	if by.FieldSelector == nil {
		return true
	}
	for _, field := range by.FieldSelector.Requirements() {
		if !ownerchain.Indexed(object, field.Field, field.Value) {
			return false
		}
	}
	return true
}
