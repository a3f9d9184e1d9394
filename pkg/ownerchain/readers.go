// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

// liveTimeout bounds the time that API calls for one question may take. API servers wait two seconds for an admission webhook.
const liveTimeout = time.Second

// ofUID is an option of a Get that follows an owner reference. A name can be used again, so another UID is another object.
type ofUID types.UID

// ApplyToGet implements client.GetOption. It is for the readers below; other readers return any object with the name.
func (ofUID) ApplyToGet(*client.GetOptions) {}

// Cached answers from the informers that Prepare set up, and about providers' kinds from informers that the first read starts.
type Cached struct {
	client.Reader
	// Count counts owner look-ups; nil counts none.
	Count func(metrics.LookupResult)
}

// Get implements client.Reader.
func (r Cached) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := r.Reader.Get(ctx, key, object, options...)
	r.count(metrics.Cached, object, err, options)
	return err
}

// count counts the look-up of an owner and where it was found.
func (r Cached) count(where metrics.LookupResult, object client.Object, err error, options []client.GetOption) {
	uid, isOwner := ownerIn(options)
	switch {
	case r.Count == nil || !isOwner:
	case isNot(uid, object, err) || meta.IsNoMatchError(err):
		r.Count(metrics.Missing)
	case err != nil:
		r.Count(metrics.LookupFailed)
	default:
		r.Count(where)
	}
}

// cached is promoted to the readers that have a cache behind them.
func (r Cached) cached() Cached { return r }

// cachedBehind returns the cache behind a reader, which may be one itself.
func cachedBehind(reader client.Reader) Cached {
	if r, ok := reader.(interface{ cached() Cached }); ok {
		return r.cached()
	}
	return Cached{Reader: reader}
}

// CachedThenLive asks the API server for an owner that is not in the cache. Unlike the loop, admission cannot wait for the owner's
// event. Only owners are worth the call.
type CachedThenLive struct {
	Cached
	Live client.Reader
}

// Get implements client.Reader.
func (r CachedThenLive) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := r.cachedGet(ctx, key, object, options)
	uid, isOwner := ownerIn(options)
	unlisted := apierrors.IsTimeout(err) // the API server may know the object all the same
	if !isOwner || !unlisted && !isNot(uid, object, err) {
		r.count(metrics.Cached, object, err, options)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	err = r.Live.Get(ctx, key, object, options...)
	r.count(metrics.Live, object, err, options)
	return err
}

// cachedGet reads the cache. A read of a provider's kind may wait until the cache has listed the kind. It leaves the API server enough time.
func (r CachedThenLive) cachedGet(ctx context.Context, key client.ObjectKey, object client.Object, options []client.GetOption) error {
	if _, is := object.(runtime.Unstructured); is {
		bounded, cancel := context.WithTimeout(ctx, liveTimeout/4)
		defer cancel()
		ctx = bounded
	}
	return r.Reader.Get(ctx, key, object, options...)
}

// Fresh gets every object from the API server, and falls back to the cache if that does not answer. Lists come from the cache: it
// knows which objects there are, and the API server does not have its indexes.
type Fresh struct {
	Cached
	Live client.Reader
}

// Get implements client.Reader.
func (r Fresh) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := r.Live.Get(ctx, key, object, options...)
	if err != nil && !apierrors.IsNotFound(err) {
		ctrl.LoggerFrom(ctx).V(1).Info("The API server did not tell of an owner, so the cache does", "owner", key, "reason", err.Error())
		err = r.Reader.Get(ctx, key, object, options...)
	}
	r.count(metrics.Live, object, err, options)
	return err
}

// Limited refuses reads beyond a limit. It is for Fresh, which has a cache to fall back on. If its reader is Shared, only those
// reads count that would not be made otherwise: an answer that others wait for, too, costs the API server nothing more.
type Limited struct {
	client.Reader
	Allow func(context.Context) bool
}

// Get implements client.Reader.
func (r Limited) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return r.ask(ctx, refer(key, object)).copyTo(ctx, object, options...)
}

// ask implements asker.
func (r Limited) ask(ctx context.Context, to reference) *read {
	shared, ok := r.Reader.(*Shared)
	if !ok {
		shared = &Shared{Reader: r.Reader}
	}
	return shared.askIf(to, func() bool { return r.Allow(ctx) })
}

// ownerIn returns the UID of the owner, which may be empty, if a Get with these options follows an owner reference.
func ownerIn(options []client.GetOption) (types.UID, bool) {
	for _, option := range options {
		if uid, ok := option.(ofUID); ok {
			return types.UID(uid), true
		}
	}
	return "", false
}

// isNot reports whether a Get has not found the object with that UID.
func isNot(uid types.UID, object client.Object, err error) bool {
	return apierrors.IsNotFound(err) || err == nil && uid != "" && object.GetUID() != uid
}
