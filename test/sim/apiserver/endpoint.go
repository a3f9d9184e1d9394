// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"
)

// strategy has the properties of a kind, as in the registries of Kubernetes.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// endpoint works like k8s.io/apiserver/pkg/registry/generic/registry.Store, for the objects of a kind or for their status.
type endpoint struct {
	server   *Server
	kind     *kind
	table    *table
	strategy strategy
	scope    *handlers.RequestScope
	// patchTypes has the accepted types of a PATCH.
	patchTypes []string
	// fresh returns an empty object. load returns a copy of a stored object in the served version. save converts an object for the store,
	// without a copy.
	fresh, freshList func() runtime.Object
	load             func(runtime.Object) runtime.Object
	save             func(runtime.Object) runtime.Object
	// clean drops fields that no reader of the object sees: a webhook may have added them. It is nil for built-in kinds.
	clean func(runtime.Object)
}

// New implements rest.Storage.
func (e *endpoint) New() runtime.Object { return e.fresh() }

// NewList implements rest.Lister.
func (e *endpoint) NewList() runtime.Object { return e.freshList() }

// ConvertToTable implements rest.Lister. No client asks for tables.
func (e *endpoint) ConvertToTable(context.Context, runtime.Object, runtime.Object) (*metav1.Table, error) {
	return nil, apierrors.NewMethodNotSupported(e.kind.gvr.GroupResource(), "table")
}

func (e *endpoint) resource() schema.GroupResource { return e.kind.gvr.GroupResource() }

func (e *endpoint) key(ctx context.Context, name string) string {
	if !e.kind.namespaced {
		return name
	}
	return keyOf(request.NamespaceValue(ctx), name)
}

// stored returns the stored object, or nil.
func (e *endpoint) stored(key string) runtime.Object {
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	return e.table.objects[key]
}

// Get implements rest.Getter.
func (e *endpoint) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	object := e.stored(e.key(ctx, name))
	if object == nil {
		return nil, apierrors.NewNotFound(e.resource(), name)
	}
	return e.load(object), nil
}

// List implements rest.Lister.
func (e *endpoint) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	at, err := parseVersion(options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	if options.ResourceVersionMatch == metav1.ResourceVersionMatchExact && at < e.server.expired {
		return nil, apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.")
	}
	selects, items := selectionOf(ctx, options), []runtime.Object{}
	for _, key := range e.table.keys() {
		if object := e.table.objects[key]; selects.has(object) {
			items = append(items, e.load(object))
		}
	}
	list := e.NewList()
	if err := meta.SetList(list, items); err != nil {
		return nil, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion(fmt.Sprint(e.server.version))
	accessor.SetContinue("")
	return list, nil
}

// Create implements an interface of package rest.
func (e *endpoint) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	e.identify(accessor)
	if accessor.GetGenerateName() != "" && accessor.GetName() == "" {
		accessor.SetName(e.strategy.GenerateName(accessor.GetGenerateName()))
	}
	if err := e.beforeCreate(ctx, object, validate); err != nil {
		return nil, err
	}
	name := accessor.GetName()
	key := e.key(ctx, name)
	if version := accessor.GetResourceVersion(); version != "" && version != "0" {
		return nil, storage.ErrResourceVersionSetOnCreate
	}
	current, next := e.stored(key), e.save(object.DeepCopyObject())
	if e.clean != nil {
		e.clean(next)
	}
	if current == nil && dryrun.IsDryRun(options.DryRun) {
		return e.load(next), nil
	}
	if current == nil {
		created, ok, err := e.commit(ctx, key, nil, next)
		if err != nil || ok {
			return created, err
		}
		current = e.stored(key)
	}
	err = rest.CheckGeneratedNameError(ctx, e.strategy, apierrors.NewAlreadyExists(e.resource(), name), object)
	if current != nil {
		if existing, _ := meta.Accessor(current); existing.GetDeletionTimestamp() != nil {
			message := &err.(*apierrors.StatusError).ErrStatus.Message //nolint:errorlint // made above
			*message = "object is being deleted: " + *message
		}
	}
	return nil, err
}

// identify sets the metadata that a server sets in each new object.
func (e *endpoint) identify(accessor metav1.Object) {
	rest.FillObjectMetaSystemFields(accessor)
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	accessor.SetUID(e.server.uid())
}

func (e *endpoint) beforeCreate(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc) error {
	if err := rest.BeforeCreate(e.strategy, ctx, object); err != nil {
		return err
	}
	if validate == nil {
		return nil
	}
	return validate(ctx, object.DeepCopyObject())
}

// commit replaces before with next in the store, or removes the object if next is nil, and returns the object in the served version. It
// does nothing, and returns false, if the stored object is no longer before.
func (e *endpoint) commit(ctx context.Context, key string, before, next runtime.Object) (runtime.Object, bool, error) {
	if err := e.server.turn(ctx, "store"); err != nil {
		return nil, false, err
	}
	state := stateOf(ctx)
	e.server.mu.Lock()
	if e.table.objects[key] != before {
		e.server.mu.Unlock()
		return nil, false, nil
	}
	e.server.store(e.table, key, before, next, Write{User: state.step.User, Verb: state.verb, GVR: e.table.gvr, Admission: state.admission})
	e.server.mu.Unlock()
	if next == nil {
		return nil, true, nil
	}
	return e.load(next), true, nil
}

// Update implements rest.Updater.
func (e *endpoint) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc,
	validate rest.ValidateObjectUpdateFunc, create bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	key, dry := e.key(ctx, name), dryrun.IsDryRun(options.DryRun)
	for {
		before, existing, err := e.existing(key, name, create || e.strategy.AllowCreateOnUpdate(ctx), info.Preconditions())
		if err != nil {
			return nil, false, err
		}
		object, err := info.UpdatedObject(ctx, existing)
		if err == nil && before == nil {
			err = e.createByUpdate(ctx, object, validateCreate)
		} else if err == nil {
			object, err = e.beforeUpdate(ctx, name, object, existing, validate)
		}
		if err != nil {
			return nil, false, err
		}
		next := e.save(object.DeepCopyObject())
		changes := before == nil || !apiequality.Semantic.DeepEqual(next, before) // also if clean drops all changes
		if e.clean != nil {
			e.clean(next)
		}
		if dry || !changes {
			return e.load(next), before == nil, nil
		}
		if updated, ok, err := e.commit(ctx, key, before, unlessEmptied(next, before)); err != nil || ok {
			return answered(updated, object), before == nil, err
		}
	}
}

// existing returns the stored object, nil if there is none, and the object to change, which is then empty.
func (e *endpoint) existing(key, name string, mayBeNew bool, preconditions *metav1.Preconditions) (before, existing runtime.Object, err error) {
	before, existing = e.stored(key), e.fresh()
	switch {
	case before != nil:
		existing = e.load(before)
	case !mayBeNew:
		return nil, nil, apierrors.NewNotFound(e.resource(), name)
	}
	if err := e.check(preconditions, key, existing); err != nil {
		return nil, nil, storeerr.InterpretUpdateError(err, e.resource(), name)
	}
	return before, existing, nil
}

// answered returns the stored object or, after its last finalizer has gone, the sent object.
func answered(updated, object runtime.Object) runtime.Object {
	if updated == nil {
		return object
	}
	return updated
}

func (e *endpoint) check(preconditions *metav1.Preconditions, key string, existing runtime.Object) error {
	if preconditions == nil {
		return nil
	}
	p := &storage.Preconditions{UID: preconditions.UID, ResourceVersion: preconditions.ResourceVersion}
	return p.Check("/registry/"+e.kind.gvr.Resource+"/"+key, existing)
}

func (e *endpoint) createByUpdate(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	e.identify(accessor)
	return e.beforeCreate(ctx, object, validate)
}

func (e *endpoint) beforeUpdate(ctx context.Context, name string, object, existing runtime.Object, validate rest.ValidateObjectUpdateFunc) (runtime.Object, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	old, err := meta.Accessor(existing)
	if err != nil {
		return nil, err
	}
	switch version := accessor.GetResourceVersion(); {
	case (version == "" || version == "0") && e.strategy.AllowUnconditionalUpdate(ctx):
		accessor.SetResourceVersion(old.GetResourceVersion())
	case version == "" || version == "0":
		invalid := field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: e.resource().Group, Kind: e.resource().Resource}, name, field.ErrorList{invalid})
	case version != old.GetResourceVersion():
		return nil, apierrors.NewConflict(e.resource(), name, fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if err := rest.BeforeUpdate(e.strategy, ctx, object, existing); err != nil {
		return nil, err
	}
	if e.clean == nil { // objects of kube-apiserver's own types have no kind
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		existing.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	if object, err = fieldmanager.IgnoreManagedFieldsTimestampsTransformer(ctx, object, existing); err != nil || validate == nil {
		return object, err
	}
	return object, validate(ctx, object.DeepCopyObject(), existing.DeepCopyObject())
}

// unlessEmptied returns the object that an update stores: nil if the update removes the last finalizer of an object that is being deleted.
func unlessEmptied(next, before runtime.Object) runtime.Object {
	if before == nil {
		return next
	}
	accessor, _ := meta.Accessor(next)
	old, _ := meta.Accessor(before)
	if len(accessor.GetFinalizers()) == 0 && old.GetDeletionTimestamp() != nil {
		return nil
	}
	return next
}

// Delete implements rest.GracefulDeleter. There is no graceful deletion, and owner references have no effect.
func (e *endpoint) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	key := e.key(ctx, name)
	for {
		before := e.stored(key)
		if before == nil {
			return nil, false, apierrors.NewNotFound(e.resource(), name)
		}
		existing := e.load(before)
		if _, _, err := rest.BeforeDelete(e.strategy, ctx, existing, options); err != nil {
			return nil, false, err
		}
		if err := validate(ctx, existing); err != nil {
			return nil, false, err
		}
		accessor, err := meta.Accessor(existing)
		if err != nil {
			return nil, false, err
		}
		var next runtime.Object
		deletes := len(accessor.GetFinalizers()) == 0
		if !deletes {
			markDeleted(accessor)
			next = e.save(existing.DeepCopyObject())
		}
		if dryrun.IsDryRun(options.DryRun) || !deletes && apiequality.Semantic.DeepEqual(next, before) {
			if deletes {
				return e.deleted(accessor, nil), true, nil
			}
			return existing, false, nil
		}
		marked, ok, err := e.commit(ctx, key, before, next)
		if err != nil {
			return nil, false, err
		}
		if ok {
			return e.deleted(accessor, marked), deletes, nil
		}
	}
}

// DeleteCollection implements rest.CollectionDeleter.
func (e *endpoint) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, of *metainternalversion.ListOptions) (runtime.Object, error) {
	list, err := e.List(ctx, of)
	if err != nil {
		return nil, err
	}
	return list, meta.EachListItem(list, func(object runtime.Object) error {
		accessor, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		if _, _, err = e.Delete(ctx, accessor.GetName(), validate, options.DeepCopy()); apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

func markDeleted(accessor metav1.Object) {
	if accessor.GetDeletionTimestamp() == nil {
		if generation := accessor.GetGeneration(); generation > 0 {
			accessor.SetGeneration(generation + 1)
		}
		now := metav1.NewTime(time.Now())
		accessor.SetDeletionTimestamp(&now)
	}
	var none int64
	accessor.SetDeletionGracePeriodSeconds(&none)
}

// deleted returns the answer to a deletion: the object if it waits for its finalizers, otherwise a Status with its name and UID.
func (e *endpoint) deleted(accessor metav1.Object, waiting runtime.Object) runtime.Object {
	if waiting != nil {
		return waiting
	}
	return &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
		Name: accessor.GetName(), Group: e.resource().Group, Kind: e.resource().Resource, UID: accessor.GetUID(),
	}}
}
