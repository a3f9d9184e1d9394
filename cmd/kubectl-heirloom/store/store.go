// SPDX-License-Identifier: Apache-2.0

// Package store is the plugin's view of a management cluster: the objects of an API server, and objects of files in front of them. An owner
// chain reads the store in place of caches.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// patience limits the time of a read. The limit of the owner chain is for webhooks, and people wait longer.
const patience = 10 * time.Second

// Store reads each list and each object once, and also remembers objects that do not exist or cannot be read. It answers lists by the
// indexes of an owner chain. Returned objects must not be changed.
type Store struct {
	// Layout returns the layout of a kind of control plane: the paths of its inheritable entries.
	Layout func(context.Context, schema.GroupVersionKind) (inherit.Layout, error)

	live client.Client

	mu    sync.Mutex
	kinds map[schema.GroupKind]*kind
}

// kind holds the objects of a kind, in the versions in which they were read.
type kind struct {
	objects map[types.NamespacedName]*object
	// listed holds the namespaces whose objects have been listed, with the error of the list; "" stands for all namespaces.
	listed map[string]error
	// made holds the objects as values of a Go type, in the order of an API server, by the values of an index. It is filled on demand.
	made map[index]map[string][]client.Object
}

// index is an index of a Go type; without a field, all objects have the value "".
type index struct {
	as    reflect.Type
	field string
}

// object holds the content of an object, or the error of its read.
type object struct {
	*unstructured.Unstructured
	err error
	// put says that the object stands in front of the stored object.
	put bool
	as  map[reflect.Type]client.Object
}

// New returns a store of the objects of an API server.
func New(live client.Client, layout func(context.Context, schema.GroupVersionKind) (inherit.Layout, error)) *Store {
	return &Store{Layout: layout, live: live, kinds: map[schema.GroupKind]*kind{}}
}

// Chain returns an owner chain that reads from the store, for the Nodes of a Cluster; it lists only the namespace of the Cluster.
func (s *Store) Chain(cluster types.NamespacedName) *owners.Chain {
	chain := &owners.Chain{Cache: within{s, cluster.Namespace}, Layout: s.Layout, Mapper: s.live.RESTMapper()}
	return chain.Within(cluster)
}

// within lists the objects of a namespace: all objects of a Cluster are in its namespace.
type within struct {
	*Store
	namespace string
}

// List implements client.Reader.
func (r within) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if r.namespace != "" {
		options = append([]client.ListOption{client.InNamespace(r.namespace)}, options...)
	}
	return r.Store.List(ctx, list, options...)
}

// Put makes the store answer with this object instead of the stored object, or in addition to the stored objects.
func (s *Store) Put(u *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(u.GroupVersionKind()).set(client.ObjectKeyFromObject(u), &object{Unstructured: u, put: true})
}

// Prefetch lists all objects of Cluster API in a namespace, or in all if it is "", so that later reads of them make no calls.
func (s *Store) Prefetch(ctx context.Context, namespace string) error {
	lists := []client.ObjectList{&clusterv1.ClusterList{}, &clusterv1.ClusterClassList{}}
	for _, kind := range owners.Table {
		if kind.NewList != nil {
			lists = append(lists, kind.NewList())
		}
	}
	for _, list := range lists {
		if err := s.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("listing the objects of Cluster API: %w", err)
		}
	}
	return nil
}

// Get implements client.Reader.
func (s *Store) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(into, s.live.Scheme())
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", into, err)
	}
	found := s.known(gvk, key)
	if found == nil {
		found = s.read(ctx, gvk, key)
	}
	if found.err != nil {
		return found.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	typed, err := found.typed(reflect.TypeOf(into))
	if err == nil {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(typed).Elem())
	}
	return err
}

// List implements client.Reader. An API server does not know the indexes of the caches, so the store reads all objects of a namespace once,
// or of all namespaces if none is given. A kind that is not served has no objects.
func (s *Store) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	by := (&client.ListOptions{}).ApplyOptions(options)
	gvk, err := apiutil.GVKForObject(list, s.live.Scheme())
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	if err := s.list(ctx, gvk, by.Namespace); err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.of(gvk).by(itemOf(list), by.FieldSelector)
	if err != nil {
		return err
	}
	found := []runtime.Object{}
	for _, object := range all {
		chosen := by.LabelSelector == nil || by.LabelSelector.Matches(labels.Set(object.GetLabels()))
		if chosen && (by.Namespace == "" || by.Namespace == object.GetNamespace()) && (by.Limit == 0 || int64(len(found)) < by.Limit) {
			found = append(found, object)
		}
	}
	return meta.SetList(list, found) //nolint:wrapcheck // the caller knows the object
}

// itemOf returns the type of a list's items.
func itemOf(list client.ObjectList) reflect.Type {
	items, _ := meta.GetItemsPtr(list) // every list has items
	return reflect.PointerTo(reflect.TypeOf(items).Elem().Elem())
}

// of returns the known objects of a kind.
func (s *Store) of(gvk schema.GroupVersionKind) *kind {
	known := s.kinds[gvk.GroupKind()]
	if known == nil {
		known = &kind{objects: map[types.NamespacedName]*object{}, listed: map[string]error{}, made: map[index]map[string][]client.Object{}}
		s.kinds[gvk.GroupKind()] = known
	}
	return known
}

// known returns an object, or the error of its read, if no call is needed for it; nil otherwise.
func (s *Store) known(gvk schema.GroupVersionKind, key client.ObjectKey) *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of(gvk)
	if found := of.objects[key]; found != nil {
		return found
	}
	err, listed := of.wasListed(key.Namespace)
	switch {
	case !listed, apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return nil // an object may be readable even if the list is not
	case err == nil:
		err = apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
	}
	return &object{err: err}
}

// wasListed reports whether a namespace was listed, or all were, with the error. A user who may not list all namespaces may still list a
// single namespace.
func (k *kind) wasListed(namespace string) (err error, listed bool) {
	if err, listed := k.listed[""]; listed && (namespace == "" || !apierrors.IsForbidden(err)) {
		return err, true
	}
	err, listed = k.listed[namespace]
	return err, listed
}

// read gets an object from the API server.
func (s *Store) read(ctx context.Context, gvk schema.GroupVersionKind, key client.ObjectKey) *object {
	ctx, cancel := patiently(ctx)
	defer cancel()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	found := &object{Unstructured: u, err: s.live.Get(ctx, key, u)}
	if !errors.Is(found.err, context.Canceled) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.of(gvk).set(key, found)
	}
	return found
}

// list reads the objects of a kind in a namespace, or in all namespaces, once.
func (s *Store) list(ctx context.Context, gvk schema.GroupVersionKind, namespace string) error {
	s.mu.Lock()
	err, listed := s.of(gvk).wasListed(namespace)
	s.mu.Unlock()
	if listed {
		return err
	}
	ctx, cancel := patiently(ctx)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	err = s.live.List(ctx, list, client.InNamespace(namespace))
	if errors.Is(err, context.Canceled) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of(gvk)
	of.listed[namespace] = err
	for i := range list.Items {
		of.set(client.ObjectKeyFromObject(&list.Items[i]), &object{Unstructured: &list.Items[i]})
	}
	return err
}

// patiently returns a context in which a read may take longer than its caller allows, but which ends with the command.
func patiently(ctx context.Context) (context.Context, context.CancelFunc) {
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})
	return patient, func() { stop(); cancel() }
}

// set stores an object, unless an object from Put stands in front of it.
func (k *kind) set(key types.NamespacedName, o *object) {
	if before := k.objects[key]; before != nil && before.put && !o.put {
		return
	}
	k.objects[key], k.made = o, map[index]map[string][]client.Object{}
}

// by returns the objects with a value of an index, as values of a Go type; all objects without a field selector.
func (k *kind) by(as reflect.Type, selector fields.Selector) ([]client.Object, error) {
	of, value := index{as: as}, ""
	if selector != nil { // an owner chain asks by one index at a time
		of.field, value = selector.Requirements()[0].Field, selector.Requirements()[0].Value
	}
	if made := k.made[of]; made != nil {
		return made[value], nil
	}
	made := map[string][]client.Object{}
	for _, key := range slices.SortedFunc(maps.Keys(k.objects), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}) {
		if k.objects[key].err != nil {
			continue
		}
		typed, err := k.objects[key].typed(as)
		if err != nil {
			return nil, err
		}
		values := []string{""}
		if of.field != "" {
			values = slices.Compact(slices.Sorted(slices.Values(owners.IndexValues(typed, of.field))))
		}
		for _, value := range values {
			made[value] = append(made[value], typed)
		}
	}
	k.made[of] = made
	return made[value], nil
}

// typed returns an object as a value of a Go type.
func (o *object) typed(as reflect.Type) (client.Object, error) {
	if as == reflect.TypeOf(o.Unstructured) {
		return o.Unstructured, nil
	}
	if made := o.as[as]; made != nil {
		return made, nil
	}
	made, isObject := reflect.New(as.Elem()).Interface().(client.Object)
	if !isObject {
		return nil, fmt.Errorf("reading %s %s: it cannot be a %s", o.GetKind(), client.ObjectKeyFromObject(o), as)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, made); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", o.GetKind(), client.ObjectKeyFromObject(o), err)
	}
	if o.as == nil {
		o.as = map[reflect.Type]client.Object{}
	}
	o.as[as] = made
	return made, nil
}
