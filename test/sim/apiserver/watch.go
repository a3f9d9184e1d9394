// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// watcher sends the events of one watch, one after the other.
type watcher struct {
	endpoint *endpoint
	selects  selection
	result   chan watch.Event
	// wake has an element if run may have something to do.
	wake   chan struct{}
	stop   context.CancelFunc
	closed bool          // gets no more events
	cut    bool          // and loses the events in its queue
	queue  []watch.Event // of shared objects; under the Server's lock
	ending sync.Once
}

// selection selects the objects of a list or a watch.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func selectionOf(ctx context.Context, options *metainternalversion.ListOptions) selection {
	s := selection{namespace: request.NamespaceValue(ctx), labels: options.LabelSelector, fields: options.FieldSelector}
	if s.labels == nil {
		s.labels = labels.Everything()
	}
	if s.fields == nil {
		s.fields = fields.Everything()
	}
	return s
}

func (s selection) has(object runtime.Object) bool {
	if object == nil {
		return false
	}
	accessor, err := meta.Accessor(object)
	if err != nil || s.namespace != "" && accessor.GetNamespace() != s.namespace {
		return false
	}
	if !s.labels.Empty() && !s.labels.Matches(labels.Set(accessor.GetLabels())) {
		return false
	}
	known := fields.Set{"metadata.name": accessor.GetName(), "metadata.namespace": accessor.GetNamespace()}
	if pod, ok := object.(*corev1.Pod); ok {
		known[podNode] = pod.Spec.NodeName
	}
	return s.fields.Empty() || s.fields.Matches(known)
}

// Watch implements rest.Watcher.
func (e *endpoint) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	from, err := parseVersion(options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	w := &watcher{endpoint: e, selects: selectionOf(ctx, options), result: make(chan watch.Event), wake: make(chan struct{}, 1)}
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	switch {
	case initial || from == 0 && options.SendInitialEvents == nil:
		for _, key := range e.table.keys() {
			if object := e.table.objects[key]; w.selects.has(object) {
				w.queue = append(w.queue, watch.Event{Type: watch.Added, Object: object})
			}
		}
		if initial && options.AllowWatchBookmarks {
			w.queue = append(w.queue, watch.Event{Type: watch.Bookmark, Object: e.bookmark()})
		}
	case from == 0: // from the present state on
	case from < e.server.expired:
		expired := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, e.server.expired))
		w.queue = append(w.queue, watch.Event{Type: watch.Error, Object: &expired.ErrStatus})
		w.closed = true
	default:
		for _, past := range e.table.history {
			if past.version > from {
				w.tell(past)
			}
		}
	}
	ctx, w.stop = context.WithCancel(ctx)
	if !w.closed {
		e.server.watchers = append(e.server.watchers, w)
	}
	go w.run(ctx)
	return w, nil
}

func parseVersion(version string) (uint64, error) {
	if version == "" {
		return 0, nil
	}
	parsed, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	return parsed, nil
}

// bookmark returns the object of the event after all existing objects. Called under the lock.
func (e *endpoint) bookmark() runtime.Object {
	object := e.New()
	setVersion(object, e.server.version)
	accessor, _ := meta.Accessor(object)
	accessor.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return object
}

// tell adds a change to the queue if the watch selects the object. Called under the lock.
func (w *watcher) tell(e event) {
	if w.closed {
		return
	}
	had, has := w.selects.has(e.before), w.selects.has(e.after)
	switch {
	case has && had:
		w.queue = append(w.queue, watch.Event{Type: watch.Modified, Object: e.after})
	case has:
		w.queue = append(w.queue, watch.Event{Type: watch.Added, Object: e.after})
	case had:
		// The last state that the watch selected, with the version of the change.
		gone := e.before.DeepCopyObject()
		setVersion(gone, e.version)
		w.queue = append(w.queue, watch.Event{Type: watch.Deleted, Object: gone})
	default:
		return
	}
	w.awake()
}

func (w *watcher) awake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// close ends the watch, and drops its queue. Called under the lock.
func (w *watcher) close() {
	w.closed, w.cut, w.queue = true, true, nil
	w.endpoint.server.watchers = slices.DeleteFunc(w.endpoint.server.watchers, func(other *watcher) bool { return other == w })
	w.awake()
}

func (w *watcher) run(ctx context.Context) {
	defer close(w.result)
	defer w.Stop()
	until := stateOf(ctx).until
	end := time.NewTimer(time.Until(until))
	defer end.Stop()
	for sequence := 1; time.Now().Before(until); {
		next, ended := w.next()
		if ended {
			return
		}
		if next.Object == nil {
			select {
			case <-ctx.Done():
				return
			case <-end.C:
			case <-w.wake:
			}
			continue
		}
		if w.endpoint.server.event(ctx, sequence) != nil || w.isCut() {
			return
		}
		if next.Type != watch.Error {
			next.Object = w.endpoint.load(next.Object)
		}
		select {
		case <-ctx.Done():
			return
		case w.result <- next:
		}
		sequence++
	}
}

// next takes an event out of the queue, if there is one. It reports whether the watch has ended.
func (w *watcher) next() (watch.Event, bool) {
	w.endpoint.server.mu.Lock()
	defer w.endpoint.server.mu.Unlock()
	if len(w.queue) == 0 {
		return watch.Event{}, w.closed
	}
	next := w.queue[0]
	w.queue = w.queue[1:]
	return next, false
}

func (w *watcher) isCut() bool {
	w.endpoint.server.mu.Lock()
	defer w.endpoint.server.mu.Unlock()
	return w.cut
}

// Stop implements watch.Interface.
func (w *watcher) Stop() {
	w.stop()
	w.ending.Do(func() {
		w.endpoint.server.mu.Lock()
		defer w.endpoint.server.mu.Unlock()
		w.close()
	})
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }
