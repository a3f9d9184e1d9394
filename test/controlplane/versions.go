// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Version is an object after a write, or at its deletion.
type Version struct {
	Type   watch.EventType
	Object *unstructured.Unstructured
}

// Recorder holds every version of every object of one resource that the API server has stored since the recording
// began. An informer may skip versions, but a Recorder does not. It is safe for concurrent use.
type Recorder struct {
	stop context.CancelFunc
	done chan struct{}

	mu       sync.Mutex
	versions []Version
	err      error
}

// RecordVersions records the writes of a resource in all namespaces from now on. The recording ends with ctx or Stop, which must
// come before the control plane's Stop.
func RecordVersions(ctx context.Context, config *rest.Config, resource schema.GroupVersionResource) (*Recorder, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client that records %s: %w", resource.Resource, err)
	}
	list, err := client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", resource.Resource, err)
	}
	ctx, stop := context.WithCancel(ctx)
	source := &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Resource(resource).Watch(ctx, options)
		},
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), source)
	if err != nil {
		stop()
		return nil, fmt.Errorf("watching %s: %w", resource.Resource, err)
	}
	r := &Recorder{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for event := range watcher.ResultChan() {
			r.record(event)
		}
	}()
	return r, nil
}

func (r *Recorder) record(event watch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch object, ok := event.Object.(*unstructured.Unstructured); {
	case event.Type == watch.Error:
		r.err = fmt.Errorf("the recording has a gap: %w", apierrors.FromObject(event.Object))
	case ok && event.Type != watch.Bookmark:
		r.versions = append(r.versions, Version{Type: event.Type, Object: object})
	}
}

// Versions returns the versions of one object so far, oldest first. The namespace of a cluster-scoped object is "".
// The objects are shared: the caller must not change them.
func (r *Recorder) Versions(namespace, name string) []Version {
	return slices.DeleteFunc(r.All(), func(v Version) bool { return v.Object.GetNamespace() != namespace || v.Object.GetName() != name })
}

// All returns the versions of all objects so far, oldest first.
func (r *Recorder) All() []Version {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.versions)
}

// Stop ends the recording and returns an error if it is incomplete.
func (r *Recorder) Stop() error {
	r.stop()
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
