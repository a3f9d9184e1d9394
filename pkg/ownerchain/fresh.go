// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

// Fresh returns a chain that reads every object on the way from the API server, for a question that the cache must not
// answer alone: whether a child lacks something because somebody has taken it away, or because its owner no longer declares
// it and the cache has not heard of that yet. Its answers together are bounded in time by the context that is returned; what
// the API server does not answer, the cache does.
func (c *Chain) Fresh(ctx context.Context, live client.Reader) (*Chain, context.Context, context.CancelFunc) {
	fresh := *c
	fresh.Cache, fresh.Live, fresh.again = freshReader{Reader: c.Cache, live: live}, nil, true
	if c.Count != nil {
		fresh.Count = func(result metrics.LookupResult) {
			if result == metrics.Cached {
				result = metrics.Live
			}
			c.Count(result)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	return &fresh, ctx, cancel
}

// freshReader gets from the API server what it can. What it lists is as the cache has it: to know which objects there are is
// what the cache is for, and its indexes are not the API server's.
type freshReader struct {
	client.Reader
	live client.Reader
}

// Get implements client.Reader.
func (r freshReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := r.live.Get(ctx, key, object, options...)
	if err == nil || apierrors.IsNotFound(err) {
		return err
	}
	ctrl.LoggerFrom(ctx).V(1).Info("The API server did not tell of an owner, so the cache does", "owner", key, "reason", err.Error())
	return r.Reader.Get(ctx, key, object, options...)
}

// latest returns an object out of a list as a fresh chain has it; nil where it is gone.
func latest[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c *Chain, known P) (P, error) {
	if known == nil || !c.again {
		return known, nil
	}
	now := P(new(T))
	found, err := get(ctx, c.Cache, client.ObjectKeyFromObject(known), known.GetUID(), now)
	if !found || err != nil {
		return nil, err
	}
	return now, nil
}
