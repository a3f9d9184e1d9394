// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// scope is what a list is about: objects of a kind, as values of a Go type, in a namespace or, if that is empty, in all of them.
type scope struct {
	kind      schema.GroupVersionKind
	as        reflect.Type
	namespace string
}

// listing is what was listed in a scope.
type listing struct {
	// stored are the objects that the API server has, in its order, and byKey the same.
	stored []client.Object
	byKey  map[client.ObjectKey]client.Object
	// shown are these with the objects that were put in front of them; nil until somebody asks for them.
	shown *shown
	// err says why there is no list.
	err error
}

// shown are objects with those of their indexes that were asked for.
type shown struct {
	objects []client.Object
	indexes map[string]map[string][]client.Object
}

// List implements client.Reader. An API server does not know the caches' indexes, so that all objects of a namespace are read, once,
// or those of all namespaces if none is given. A kind that is not served has no objects.
func (s *Snapshot) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	by := (&client.ListOptions{}).ApplyOptions(options)
	at, err := s.scopeOf(list, by.Namespace)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := s.listing(ctx, at, list)
	if listed.err != nil && !meta.IsNoMatchError(listed.err) {
		return listed.err
	}
	all, err := s.show(at, listed)
	if err != nil {
		return err
	}
	found := []runtime.Object{}
	for _, object := range all.by(by) {
		if by.Namespace == "" || by.Namespace == object.GetNamespace() {
			found = append(found, object)
		}
	}
	return meta.SetList(list, found)
}

// remember lists all objects of a kind in a namespace, so that what follows makes no call for each of them. If that fails, what
// follows does, too.
func (s *Snapshot) remember(ctx context.Context, list client.ObjectList, namespace string) {
	at, err := s.scopeOf(list, namespace)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listing(ctx, at, list)
}

// scopeOf returns the scope of a list.
func (s *Snapshot) scopeOf(list client.ObjectList, namespace string) (scope, error) {
	gvk, err := s.live.GroupVersionKindFor(list)
	if err != nil {
		return scope{}, fmt.Errorf("finding the kind of %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	object, err := s.make(list, gvk)
	return scope{gvk, reflect.TypeOf(object), namespace}, err
}

// make returns a new item of a list.
func (s *Snapshot) make(list client.ObjectList, gvk schema.GroupVersionKind) (client.Object, error) {
	switch list.(type) {
	case *metav1.PartialObjectMetadataList:
		return &metav1.PartialObjectMetadata{}, nil
	case *unstructured.UnstructuredList:
		return &unstructured.Unstructured{}, nil
	}
	made, err := s.live.Scheme().New(gvk)
	if err != nil {
		return nil, fmt.Errorf("making a %s: %w", gvk.Kind, err)
	}
	object, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("making a %s: got a %T", gvk.Kind, made)
	}
	return object, nil
}

// listed returns what is known of a scope: it was listed, or all namespaces were. It is nil if neither was. Those who may not list
// all namespaces may still list one.
func (s *Snapshot) listed(at scope) *listing {
	everywhere := at
	everywhere.namespace = ""
	if all := s.listings[everywhere]; all != nil && (at.namespace == "" || !apierrors.IsForbidden(all.err)) {
		return all
	}
	return s.listings[at]
}

// listing returns what is in a scope. It is read into a list of that type if it is not known.
func (s *Snapshot) listing(ctx context.Context, at scope, list client.ObjectList) *listing {
	if listed := s.listed(at); listed != nil {
		return listed
	}
	return s.read(ctx, at, list)
}

// read lists a scope, with a list of its type.
func (s *Snapshot) read(ctx context.Context, at scope, list client.ObjectList) *listing {
	listed := &listing{byKey: map[client.ObjectKey]client.Object{}}
	err := s.live.List(ctx, list, client.InNamespace(at.namespace))
	if err != nil {
		listed.err = err
		if !errors.Is(err, context.Canceled) {
			s.listings[at] = listed
		}
		return listed
	}
	listed.err = meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("reading %T: expected objects, got %T", list, item)
		}
		object, _ = object.DeepCopyObject().(client.Object) // the list is the caller's own
		object.GetObjectKind().SetGroupVersionKind(at.kind)
		listed.stored = append(listed.stored, object)
		listed.byKey[client.ObjectKeyFromObject(object)] = object
		return nil
	})
	s.listings[at] = listed
	return listed
}

// show returns the objects of a listing with those that were put in front of them.
func (s *Snapshot) show(at scope, listed *listing) (*shown, error) {
	if listed.shown != nil {
		return listed.shown, nil
	}
	now := &shown{indexes: map[string]map[string][]client.Object{}}
	for _, object := range listed.stored {
		if _, put := s.instead[idOf(at.kind, client.ObjectKeyFromObject(object))]; !put {
			now.objects = append(now.objects, object)
		}
	}
	for of, put := range s.instead {
		if of.GroupKind != at.kind.GroupKind() {
			continue
		}
		object, ok := reflect.New(at.as.Elem()).Interface().(client.Object)
		if !ok {
			return nil, fmt.Errorf("reading %s %s: it cannot be a %s", of.Kind, of.ObjectKey, at.as)
		}
		if err := convert(put, object, at.kind); err != nil {
			return nil, err
		}
		now.objects = append(now.objects, object)
	}
	slices.SortStableFunc(now.objects, inOrder)
	listed.shown = now
	return now, nil
}

// by returns the objects that are in the indexes that are asked for.
func (s *shown) by(options *client.ListOptions) []client.Object {
	if options.FieldSelector == nil {
		return s.objects
	}
	found := s.objects
	for i, field := range options.FieldSelector.Requirements() {
		indexed := s.index(field.Field)[field.Value]
		if i == 0 {
			found = indexed
			continue
		}
		found = slices.DeleteFunc(slices.Clone(found), func(object client.Object) bool { return !slices.Contains(indexed, object) })
	}
	return found
}

// index returns the objects by the values of an index, which is made when it is first asked for.
func (s *shown) index(field string) map[string][]client.Object {
	if index, made := s.indexes[field]; made {
		return index
	}
	index := map[string][]client.Object{}
	for _, object := range s.objects {
		for value := range sets.New(owners.IndexValues(object, field)...) {
			index[value] = append(index[value], object)
		}
	}
	s.indexes[field] = index
	return index
}

// inOrder sorts objects as an API server does.
func inOrder(a, b client.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}
