// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lately is the time after a read of an object in which another read gathers callers.
const lately = time.Second

var errTooManyReads = errors.New("too many live reads")

// Limited is a reader with a rate limit. Beyond the limit, a read fails at once.
type Limited struct {
	client.Reader
	Allow func() bool
}

// Get implements client.Reader.
func (l Limited) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if !l.Allow() {
		return errTooManyReads
	}
	return l.Reader.Get(ctx, key, into, options...) //nolint:wrapcheck // the caller knows the object
}

// Live reads an object from the API server once for all concurrent callers that ask for it. A result is never older than the call: a read
// that has already begun may have begun before the change that the caller asks about. So callers that arrive during a read wait for the
// next read, and share it. Callers must not change the object.
type Live struct {
	client.Reader
	// Gather is the time for which a read of an object that was read lately waits for more callers.
	Gather time.Duration

	reads singleflight.Group
	// begun holds a channel for each object that is being read, or was read lately. The channel is closed when the read ends.
	begun sync.Map
}

// Get implements client.Reader.
func (l *Live) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	gvk := into.GetObjectKind().GroupVersionKind()
	name := fmt.Sprintf("%T %s %s", into, gvk, key)
	kind := reflect.TypeOf(into).Elem()
	takes := liveTimeout // at least: other callers may have more time than the first
	if deadline, ok := ctx.Deadline(); ok {
		takes = max(takes, time.Until(deadline))
	}
	result := l.reads.DoChan(name, func() (any, error) {
		if before, ok := l.begun.Load(name); ok {
			<-before.(chan struct{}) //nolint:forcetypeassert // nothing else is stored
			if l.Gather > 0 {
				<-time.After(l.Gather)
			}
		}
		ended := make(chan struct{})
		l.begun.Store(name, ended)
		defer l.ends(name, ended)
		l.reads.Forget(name) // later callers must not share this read
		object, _ := reflect.New(kind).Interface().(client.Object)
		object.GetObjectKind().SetGroupVersionKind(gvk)
		return object, l.read(takes, key, object)
	})
	select {
	case <-ctx.Done():
		return fmt.Errorf("waiting for the API server: %w", ctx.Err())
	case r := <-result:
		if r.Err == nil {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(r.Val).Elem())
		}
		return r.Err
	}
}

// ends says that a read has ended. The next read gathers callers if it begins soon.
func (l *Live) ends(name string, read chan struct{}) {
	forget := func() { l.begun.CompareAndDelete(name, read) }
	if l.Gather == 0 {
		forget()
	} else {
		time.AfterFunc(lately, forget)
	}
	close(read)
}

// read reads an object for all callers that share the result, so it does not end when one caller gives up. It recovers from a panic,
// which would end the program otherwise.
func (l *Live) read(takes time.Duration, key client.ObjectKey, into client.Object) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), takes)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("reading %T %s: panic: %v", into, key, r)
		}
	}()
	return l.Reader.Get(ctx, key, into) //nolint:wrapcheck // the caller knows the object
}

// Kinds is the RESTMapper of a chain. controller-runtime's mapper discovers the group of each unknown kind again, such as of an invented owner
// in an admission request, blocks known kinds meanwhile, and does not notice that an upgrade has replaced a version. Kinds discovers all
// groups once for all concurrent requests, and then waits UnknownFor before it does so again. It implements only RESTMapping.
type Kinds struct {
	meta.RESTMapper
	// Discovery must have its own timeout.
	Discovery discovery.DiscoveryInterface
	// UnknownFor is the time after a discovery in which an unknown kind causes no further discovery.
	UnknownFor time.Duration
	// KnownFor is the age of a discovery at which a request starts the next discovery in the background; 0 means never.
	KnownFor time.Duration

	looks singleflight.Group
	last  atomic.Pointer[look]
}

// look is the result of a discovery: the known kinds, and the error if it failed.
type look struct {
	mapper meta.RESTMapper
	err    error
	at     time.Time
}

// RESTMapping implements meta.RESTMapper. It waits for a discovery for discoveryTimeout at most.
func (k *Kinds) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	var known *meta.RESTMapping
	if last := k.last.Load(); last != nil {
		mapping, err := last.find(gk, versions...)
		age := time.Since(last.at)
		if age < k.UnknownFor || err == nil && (k.KnownFor == 0 || age < k.KnownFor) {
			return mapping, err
		}
		known = mapping
	}
	looks := k.looks.DoChan("", k.look)
	if known != nil {
		return known, nil
	}
	select {
	case <-looks:
		return k.last.Load().find(gk, versions...)
	case <-time.After(discoveryTimeout):
		return nil, errors.New("the API server does not list its kinds in time")
	}
}

// look discovers all served kinds. If the discovery fails, the known kinds stay.
func (k *Kinds) look() (any, error) {
	found := &look{mapper: meta.MultiRESTMapper{}, at: time.Now()}
	if last := k.last.Load(); last != nil {
		found.mapper = last.mapper
	}
	groups, err := restmapper.GetAPIGroupResources(k.Discovery)
	if found.err = err; err == nil {
		found.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	}
	k.last.Store(found)
	return nil, err
}

// find returns the mapping of a kind. If the kind is unknown, the error of the discovery counts.
func (l *look) find(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := l.mapper.RESTMapping(gk, versions...)
	if l.err != nil && meta.IsNoMatchError(err) {
		err = l.err
	}
	return mapping, err //nolint:wrapcheck // the caller knows the kind
}
