// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/pager"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// writers is how many objects of a kind are written at a time.
const writers = 10

// errReclaimed says that what has just been released is there again.
var errReclaimed = errors.New("what was released has come back in the same write: another Heirloom is still at work")

// objects releases all objects of a kind. The list has only their metadata, which is enough to skip most of them.
func (s *session) objects(ctx context.Context, gvk schema.GroupVersionKind, scope *scope) {
	ours := scope.hasObject
	if slices.Contains(s.ProviderGroups, gvk.Group) {
		ours = scope.hasExternal
	}
	s.each(ctx, s.management, gvk, s.Namespace,
		func(object *metav1.PartialObjectMetadata) bool {
			return ours(object) && managedfields.Recorded(object.ManagedFields)
		},
		func(ctx context.Context, object *metav1.PartialObjectMetadata) (bool, error) {
			return s.object(ctx, gvk, object)
		})
}

// object releases one object, and reports whether that changed it.
func (s *session) object(ctx context.Context, gvk schema.GroupVersionKind, listed *metav1.PartialObjectMetadata) (changed bool, err error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(s.recordedIn(gvk, listed))
	if err := s.management.Get(ctx, client.ObjectKeyFromObject(listed), live); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if !managedfields.Recorded(live.GetManagedFields()) {
		return false, nil
	}
	released, removed, err := managedfields.Release(live, s.KeepValues)
	if err != nil {
		return false, err
	}
	if !s.DryRun {
		// Lists are replaced as a whole, so the patch holds only for the version that was read.
		patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
		if err := s.management.Patch(ctx, released, patch, client.FieldOwner(managedfields.Manager)); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		if managedfields.Recorded(released.GetManagedFields()) {
			return false, errReclaimed
		}
		removed = nil
	}
	s.report.did("released", gvk.GroupKind(), live, "", removed...)
	return true, nil
}

// recordedIn returns the kind in the version in which our fields are recorded, where the API server still serves it.
func (s *session) recordedIn(gvk schema.GroupVersionKind, object metav1.Object) schema.GroupVersionKind {
	gv, err := schema.ParseGroupVersion(managedfields.AppliedIn(object.GetManagedFields()))
	if err != nil || gv.Group != gvk.Group {
		return gvk
	}
	if _, err := s.management.RESTMapper().RESTMapping(gvk.GroupKind(), gv.Version); err != nil {
		return gvk
	}
	return gv.WithKind(gvk.Kind)
}

// each does its work for the wanted objects of a kind, and retries conflicts.
func (s *session) each(
	ctx context.Context, c reporting, gvk schema.GroupVersionKind, namespace string,
	wanted func(*metav1.PartialObjectMetadata) bool, work func(context.Context, *metav1.PartialObjectMetadata) (bool, error),
) {
	var workers errgroup.Group
	workers.SetLimit(writers)
	var total int
	var changed atomic.Int64
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk)
	what := gvk.GroupKind().String() + c.where
	err := eachOf(ctx, c, list, namespace, func(object *metav1.PartialObjectMetadata) {
		total++
		if !wanted(object) {
			return
		}
		workers.Go(func() error {
			if err := again(ctx, func() error {
				did, err := work(ctx, object)
				if did {
					changed.Add(1)
				}
				return err
			}); err != nil {
				s.report.failed(fmt.Errorf("%s %s: %w", what, client.ObjectKeyFromObject(object), err))
			}
			return nil
		})
	})
	_ = workers.Wait() // they report for themselves
	if err != nil {
		s.report.failed(err)
		return
	}
	if total > 0 {
		s.report.note("%s: %d of %d released", what, changed.Load(), total)
	}
}

// again retries work that failed because the object had changed, or because a webhook that is being removed was still called.
func again(ctx context.Context, work func() error) error {
	var last error
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8}
	err := wait.ExponentialBackoffWithContext(ctx, backoff, func(context.Context) (bool, error) {
		last = work()
		return !apierrors.IsConflict(last) && !errors.Is(last, errReclaimed), nil
	})
	return cmp.Or(last, err)
}

// eachOf goes through the objects of a kind, in pages. list is of the kind, and gets no items.
func eachOf[T runtime.Object](ctx context.Context, c client.Reader, list client.ObjectList, namespace string, do func(T)) error {
	gvk := list.GetObjectKind().GroupVersionKind()
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		page, _ := list.DeepCopyObject().(client.ObjectList)
		page.GetObjectKind().SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		return page, c.List(ctx, page, &client.ListOptions{Namespace: namespace, Limit: options.Limit, Continue: options.Continue})
	})
	err := pages.EachListItemWithAlloc(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		if object, ok := item.(T); ok {
			do(object)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing %s: %w", gvk.GroupKind(), err)
	}
	return nil
}

// eachServed goes through the objects of a kind of Cluster API in the served version. Without Cluster API, there are none.
func (s *session) eachServed(ctx context.Context, kind string, do func(*unstructured.Unstructured)) error {
	gk := schema.GroupKind{Group: clusterv1.GroupVersion.Group, Kind: kind}
	mapping, err := s.management.RESTMapper().RESTMapping(gk, clusterv1.GroupVersion.Version)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finding the served version of %s: %w", gk, err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind)
	return eachOf(ctx, s.management, list, s.Namespace, do)
}
