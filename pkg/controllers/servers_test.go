// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/test/sim/fakeclient"
)

// connect connects a Cluster to a workload cluster with these objects. From then on the Cluster is not the management cluster.
func (l *loop) connect(name string, objects ...client.Object) client.WithWatch {
	l.t.Helper()
	server := fakeclient.New(objects...)
	if l.ManagementCluster == key(name) {
		l.ManagementCluster = client.ObjectKey{}
	}
	l.workloads.servers[key(name)] = server
	l.workloads.clients[key(name)] = l.writing("in "+name+": ", server)
	return server
}

// writing returns a client of a server that notes its writes and evictions, after a prefix.
func (l *loop) writing(prefix string, server client.WithWatch) client.WithWatch {
	return interceptor.NewClient(server, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, config runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			object := config.(client.Object) //nolint:forcetypeassert // it panics
			l.Expect((&client.ApplyOptions{}).ApplyOptions(options).Force).To(HaveValue(BeTrue()), "an owner is authoritative")
			return l.write(prefix+"applies ", object, func() error { return c.Apply(ctx, config, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return l.write(prefix+"patches ", object, func() error { return c.Patch(ctx, object, patch, options...) })
		},
		SubResourceCreate: l.evict,
	})
}

// write notes a write after its answer.
func (l *loop) write(verb string, object client.Object, send func() error) error {
	defer l.writes.note(verb + l.kindOf(object) + "/" + object.GetName())
	if l.refuse != nil {
		return l.refuse
	}
	err := send()
	if err == nil {
		l.writtenAs(object)
	}
	return err
}

// evict notes the eviction of a Pod and returns its answer.
func (l *loop) evict(
	ctx context.Context, c client.Client, subResource string, pod, eviction client.Object, options ...client.SubResourceCreateOption,
) error {
	l.Expect(subResource).To(Equal("eviction"))
	l.Expect(eviction.(*policyv1.Eviction).DeleteOptions.Preconditions.UID).To(HaveValue(Equal(pod.GetUID()))) //nolint:forcetypeassert // see above
	if ctx.Err() == nil {
		l.writes.note("evicts " + pod.GetName())
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("posting: %w", ctx.Err())
	case <-time.After(l.evictionTakes):
	}
	if err := l.staying[pod.GetName()]; err != nil {
		return err
	}
	return c.SubResource(subResource).Create(ctx, pod, eviction, options...)
}

// cached returns a client whose reads are as old and as broken as the cache of the loop.
func (l *loop) cached(server client.WithWatch) client.WithWatch {
	return interceptor.NewClient(server, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			if err := l.fails(ctx, l.kindOf(into)); err != nil {
				return err
			}
			if kept := l.stale[l.kindOf(into)+"/"+key.Name]; kept == nil {
				if err := c.Get(ctx, key, into, options...); err != nil {
					return err
				}
			}
			return l.asCached(into, key.Name)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := l.fails(ctx, strings.TrimSuffix(l.kindOf(list), "List")); err != nil {
				return err
			}
			if err := c.List(ctx, list, options...); err != nil {
				return err
			}
			return meta.EachListItem(list, func(item runtime.Object) error {
				object := item.(client.Object) //nolint:forcetypeassert // it panics
				return l.asCached(object, object.GetName())
			})
		},
	})
}

// asCached makes an object the one of a stale cache, and sets its kind, as an informer cache does.
func (l *loop) asCached(object client.Object, name string) error {
	gvk, err := l.server.GroupVersionKindFor(object)
	if kept := l.stale[gvk.Kind+"/"+name]; kept != nil {
		raw, _ := json.Marshal(kept)
		err = json.Unmarshal(raw, object)
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	return err
}

// fails returns the error of reads of a kind. Reads of a kind that hangs end with their context.
func (l *loop) fails(ctx context.Context, kind string) error {
	if hangs, ok := l.broken[kind].(hanging); ok { //nolint:errorlint // it is as it was set
		<-ctx.Done()
		return hangs.error
	}
	return l.broken[kind]
}

// hanging is the error of a read that waits until its context ends, as for an informer that has not synced.
type hanging struct{ error }

// uncached returns a client that notes its reads, which bypass the cache.
func (l *loop) uncached(server client.WithWatch) client.WithWatch {
	return interceptor.NewClient(server, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			l.live.note(l.kindOf(into) + "/" + key.Name)
			if l.refuseLive != nil {
				return l.refuseLive
			}
			if err := l.broken["live "+l.kindOf(into)]; err != nil {
				return err
			}
			return c.Get(ctx, key, into, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := l.broken["live "+l.kindOf(list)]; err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
	})
}

// stored reads an object from the API server.
func (l *loop) stored(object client.Object) client.Object {
	l.t.Helper()
	l.Expect(l.server.Get(l.t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
	return object
}

// change changes an object in the API server as another client would. The object gets a higher resourceVersion than all earlier writes: the
// fake API server counts versions per object, but a real API server counts them across objects.
func (l *loop) change(object client.Object, how func()) {
	l.t.Helper()
	l.stored(object)
	how()
	for before := l.latest.Load(); l.latest.Load() <= before; l.writtenAs(object) {
		l.Expect(l.server.Update(l.t.Context(), object, client.FieldOwner("somebody"))).To(Succeed())
	}
}

// writtenAs notes the resourceVersion of an object that was written.
func (l *loop) writtenAs(object metav1.Object) {
	var version int64
	_, err := fmt.Sscan(object.GetResourceVersion(), &version)
	l.Expect(err).NotTo(HaveOccurred())
	l.latest.Store(max(l.latest.Load(), version))
}

func (l *loop) delete(objects ...client.Object) {
	l.t.Helper()
	for _, object := range objects {
		l.Expect(l.server.Delete(l.t.Context(), object)).To(Succeed())
	}
}

// lag makes the cache keep the current version of objects.
func (l *loop) lag(objects ...client.Object) {
	l.t.Helper()
	for _, object := range objects {
		kept := l.stored(object).DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same type
		l.stale[l.kindOf(object)+"/"+object.GetName()] = kept
	}
}

// kindOf returns the kind of an object.
func (l *loop) kindOf(object runtime.Object) string {
	l.t.Helper()
	gvk, err := l.server.GroupVersionKindFor(object)
	l.Expect(err).NotTo(HaveOccurred())
	return gvk.Kind
}
