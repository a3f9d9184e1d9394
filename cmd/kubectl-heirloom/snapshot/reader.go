// SPDX-License-Identifier: Apache-2.0

// Package snapshot is a management cluster as the plugin reads it: an API server in place of the caches that an owner chain reads,
// with objects put in front of it that are to be written.
package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// patience bounds one read. The owner chain bounds it by what API servers wait for a webhook, and people wait longer.
const patience = 10 * time.Second

// Snapshot reads each list and each object once. It answers lists by the indexes of an owner chain, and its objects have their kind.
type Snapshot struct {
	live    client.Client
	schemas ownerchain.Schemas

	mu sync.Mutex
	// lists are all objects by the type of their list, objects the same by their own type.
	lists   map[reflect.Type][]runtime.Object
	objects map[reflect.Type]map[client.ObjectKey]client.Object
	// got are objects that were read one by one.
	got map[read]client.Object
	// instead are objects that stand in front of those that are stored.
	instead map[id]client.Object
}

// read is an object as it was read into a type.
type read struct {
	id
	as reflect.Type
}

// id names an object, in whatever version and type it is read.
type id struct {
	schema.GroupKind
	client.ObjectKey
}

// New returns a snapshot of the management cluster.
func New(live client.Client, schemas ownerchain.Schemas) *Snapshot {
	return &Snapshot{
		live: live, schemas: schemas, instead: map[id]client.Object{}, got: map[read]client.Object{},
		lists: map[reflect.Type][]runtime.Object{}, objects: map[reflect.Type]map[client.ObjectKey]client.Object{},
	}
}

// Chain returns the owner chain that reads from the snapshot.
func (s *Snapshot) Chain() *ownerchain.Chain {
	return &ownerchain.Chain{Reader: s, Mapper: s.live.RESTMapper(), Layout: s.schemas.ControlPlane}
}

// Schemas returns the schemas of the management cluster's kinds.
func (s *Snapshot) Schemas() ownerchain.Schemas { return s.schemas }

// Live returns the client behind the snapshot.
func (s *Snapshot) Live() client.Client { return s.live }

// Put makes the snapshot answer with this object instead of the one that is stored, or in addition to those. The object must be
// in the version of the API that the chain reads.
func (s *Snapshot) Put(object *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instead[idOf(object.GroupVersionKind(), client.ObjectKeyFromObject(object))] = object.DeepCopy()
}

// Prefetch lists all objects of Cluster API, so that what follows makes no call for each of them.
func (s *Snapshot) Prefetch(ctx context.Context) error {
	for _, list := range []client.ObjectList{
		&capi.ClusterList{}, &capi.ClusterClassList{}, &capi.MachineDeploymentList{}, &capi.MachinePoolList{}, &capi.MachineSetList{},
		&capi.MachineList{},
	} {
		if _, err := s.all(ctx, list); err != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("listing %T: %w", list, err)
		}
	}
	return nil
}

// Get implements client.Reader.
func (s *Snapshot) Get(ctx context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	gvk, err := s.live.GroupVersionKindFor(object)
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	if found, known := s.known(gvk, key, object); known {
		if found == nil {
			return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
		}
		return convert(found, object, gvk)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := s.live.Get(ctx, key, object); err != nil {
		return err
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	s.mu.Lock()
	defer s.mu.Unlock()
	copied, _ := object.DeepCopyObject().(client.Object)
	s.got[read{idOf(gvk, key), reflect.TypeOf(object)}] = copied
	return nil
}

// known returns an object that needs no call. It is nil if all objects of its type are known, and it is none of them.
func (s *Snapshot) known(gvk schema.GroupVersionKind, key client.ObjectKey, object client.Object) (client.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if put, ok := s.instead[idOf(gvk, key)]; ok {
		return put, true
	}
	if got, ok := s.got[read{idOf(gvk, key), reflect.TypeOf(object)}]; ok {
		return got, true
	}
	of, listed := s.objects[reflect.TypeOf(object)]
	return of[key], listed
}

// List implements client.Reader. An API server does not know the caches' indexes, so that all objects are read, once.
func (s *Snapshot) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	all, err := s.all(ctx, list)
	if err != nil {
		return err
	}
	by := (&client.ListOptions{}).ApplyOptions(options)
	found := slices.DeleteFunc(all, func(object runtime.Object) bool {
		one, ok := object.(client.Object)
		return !ok || !matches(one, by)
	})
	return meta.SetList(list, found)
}

// all returns all objects of a list's type.
func (s *Snapshot) all(ctx context.Context, list client.ObjectList) ([]runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := reflect.TypeOf(list)
	if _, listed := s.lists[of]; !listed {
		if err := s.read(ctx, list); err != nil {
			return nil, err
		}
	}
	return s.withPut(list, s.lists[of])
}

// read lists all objects of a list's type.
func (s *Snapshot) read(ctx context.Context, list client.ObjectList) error {
	if err := s.live.List(ctx, list); err != nil {
		return err
	}
	all, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("reading %T: %w", list, err)
	}
	byKey := map[client.ObjectKey]client.Object{}
	for _, item := range all {
		object, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("reading %T: expected objects, got %T", list, item)
		}
		gvk, err := s.live.GroupVersionKindFor(object)
		if err != nil {
			return fmt.Errorf("finding the kind of %T: %w", object, err)
		}
		object.GetObjectKind().SetGroupVersionKind(gvk)
		byKey[client.ObjectKeyFromObject(object)] = object
		s.objects[reflect.TypeOf(object)] = byKey
	}
	s.lists[reflect.TypeOf(list)] = all
	return nil
}

// withPut returns the objects of a list with those that were put in front of them. The result is the caller's own.
func (s *Snapshot) withPut(list client.ObjectList, stored []runtime.Object) ([]runtime.Object, error) {
	all := slices.Clone(stored)
	if len(s.instead) == 0 {
		return all, nil
	}
	listKind, err := s.live.GroupVersionKindFor(list)
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", list, err)
	}
	gvk := listKind.GroupVersion().WithKind(strings.TrimSuffix(listKind.Kind, "List"))
	for of, put := range s.instead {
		if of.GroupKind != gvk.GroupKind() {
			continue
		}
		object, err := s.live.Scheme().New(gvk)
		if err != nil {
			return nil, fmt.Errorf("making a %s: %w", gvk.Kind, err)
		}
		typed, ok := object.(client.Object)
		if !ok {
			return nil, fmt.Errorf("making a %s: got a %T", gvk.Kind, object)
		}
		if err := convert(put, typed, gvk); err != nil {
			return nil, err
		}
		at := slices.IndexFunc(all, func(o runtime.Object) bool {
			stored, ok := o.(client.Object)
			return ok && client.ObjectKeyFromObject(stored) == of.ObjectKey
		})
		if at < 0 {
			all = append(all, typed)
		} else {
			all[at] = typed
		}
	}
	return all, nil
}

// convert writes an object into one of another Go type.
func convert(from, into client.Object, gvk schema.GroupVersionKind) error {
	raw, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(from), err)
	}
	into.GetObjectKind().SetGroupVersionKind(gvk)
	return nil
}

func idOf(gvk schema.GroupVersionKind, key client.ObjectKey) id { return id{gvk.GroupKind(), key} }

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
