// SPDX-License-Identifier: Apache-2.0

// Package snapshot is a management cluster as the plugin reads it: an API server in place of the caches that an owner chain reads,
// with objects put in front of it that are to be written.
package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// patience bounds one read. The owner chain bounds it by what API servers wait for a webhook, and people wait longer.
const patience = 10 * time.Second

// Snapshot reads each list and each object once, and remembers what does not exist or cannot be read, too. It answers lists by the
// indexes of an owner chain, and its objects have their kind. What it lists must not be changed.
type Snapshot struct {
	live    client.Client
	schemas Schemas

	mu sync.Mutex
	// listings are all objects of a kind, in a namespace or in all of them.
	listings map[scope]*listing
	// got are objects that were read one by one.
	got map[read]got
	// instead are objects that stand in front of those that are stored.
	instead map[id]client.Object
}

// read is an object as it was read into a type.
type read struct {
	id
	as reflect.Type
}

// got is what came of reading an object.
type got struct {
	client.Object
	err error
}

// id names an object, in whatever version and type it is read.
type id struct {
	schema.GroupKind
	client.ObjectKey
}

// Schemas tells where a kind of control plane has what it can inherit.
type Schemas interface {
	ControlPlane(ctx context.Context, gvk schema.GroupVersionKind) (inherit.Layout, error)
}

// New returns a snapshot of the management cluster.
func New(live client.Client, schemas Schemas) *Snapshot {
	return &Snapshot{
		live: live, schemas: schemas, instead: map[id]client.Object{}, got: map[read]got{}, listings: map[scope]*listing{},
	}
}

// Chain returns the owner chain that reads from the snapshot.
func (s *Snapshot) Chain() *owners.Chain {
	return &owners.Chain{Cache: s, Mapper: s.live.RESTMapper(), Layout: s.schemas.ControlPlane}
}

// Live returns the client behind the snapshot.
func (s *Snapshot) Live() client.Client { return s.live }

// Put makes the snapshot answer with this object instead of the one that is stored, or in addition to those. The object must be
// in the version of the API that the chain reads.
func (s *Snapshot) Put(object *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := idOf(object.GroupVersionKind(), client.ObjectKeyFromObject(object))
	s.instead[of] = object.DeepCopy()
	for at, listed := range s.listings {
		if at.kind.GroupKind() == of.GroupKind {
			listed.shown = nil
		}
	}
}

// Prefetch lists all objects of Cluster API, so that what follows makes no call for each of them. A walk through one Cluster lists
// only its namespace, unless this was called before.
func (s *Snapshot) Prefetch(ctx context.Context) error { return s.prefetch(ctx, metav1.NamespaceAll) }

func (s *Snapshot) prefetch(ctx context.Context, namespace string) error {
	for _, list := range []client.ObjectList{
		&clusterv1.ClusterList{}, &clusterv1.ClusterClassList{}, &clusterv1.MachineDeploymentList{}, &clusterv1.MachinePoolList{}, &clusterv1.MachineSetList{},
		&clusterv1.MachineList{},
	} {
		if err := s.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("listing the objects of Cluster API: %w", err)
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
	known, err := s.known(gvk, key, object)
	if known == nil && err == nil {
		known, err = s.get(ctx, gvk, key, object)
	}
	if err != nil {
		return err
	}
	return convert(known, object, gvk)
}

// get reads an object from the API server.
func (s *Snapshot) get(ctx context.Context, gvk schema.GroupVersionKind, key client.ObjectKey, as client.Object) (client.Object, error) {
	ctx, cancel := patiently(ctx)
	defer cancel()
	as, _ = as.DeepCopyObject().(client.Object)
	err := s.live.Get(ctx, key, as)
	if errors.Is(err, context.Canceled) {
		return nil, err
	}
	as.GetObjectKind().SetGroupVersionKind(gvk)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got[read{idOf(gvk, key), reflect.TypeOf(as)}] = got{as, err}
	return as, err
}

// patiently returns a context in which a read may take longer than its caller allows, unless the command ends.
func patiently(ctx context.Context) (context.Context, context.CancelFunc) {
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})
	return patient, func() { stop(); cancel() }
}

// known returns what needs no call: an object, or an error that says that it does not exist or cannot be read.
func (s *Snapshot) known(gvk schema.GroupVersionKind, key client.ObjectKey, object client.Object) (client.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if put, ok := s.instead[idOf(gvk, key)]; ok {
		return put, nil
	}
	as := reflect.TypeOf(object)
	if before, ok := s.got[read{idOf(gvk, key), as}]; ok {
		return before.Object, before.err
	}
	listed := s.listed(scope{kind: gvk, as: as, namespace: key.Namespace})
	switch {
	case listed == nil, apierrors.IsForbidden(listed.err), meta.IsNoMatchError(listed.err):
		return nil, nil // one object may be readable if the list is not
	case listed.err != nil:
		return nil, listed.err
	}
	if found, ok := listed.byKey[key]; ok {
		return found, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
}

// convert writes an object into one that is the caller's own, and may be of another Go type.
func convert(from, into client.Object, gvk schema.GroupVersionKind) error {
	if reflect.TypeOf(from) == reflect.TypeOf(into) {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(from.DeepCopyObject()).Elem())
		return nil
	}
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
