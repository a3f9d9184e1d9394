// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
)

// Kinds is the RESTMapper of a chain that answers admission requests, in which anybody may have made up the kind of an owner.
// A mapper of controller-runtime looks at a group anew for each kind that it does not know, one request after the other and
// however long that takes. This one looks at what there is for all who ask at the same time, and for a while not again.
// Nothing but RESTMapping works.
type Kinds struct {
	meta.RESTMapper
	// Discovery needs a timeout of its own.
	Discovery discovery.DiscoveryInterface
	// UnknownFor is how long a kind counts as unknown that was not served when somebody looked.
	UnknownFor time.Duration

	looks singleflight.Group
	mu    sync.RWMutex
	last  look
}

// look is what was served at a time.
type look struct {
	mapper meta.RESTMapper
	err    error
	at     time.Time
}

// RESTMapping implements meta.RESTMapper. It takes liveTimeout at most.
func (k *Kinds) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	k.mu.RLock()
	last := k.last
	k.mu.RUnlock()
	recent := !last.at.IsZero() && time.Since(last.at) < k.UnknownFor
	if last.mapper != nil {
		mapping, err := last.mapper.RESTMapping(gk, versions...)
		if recent && last.err == nil || !meta.IsNoMatchError(err) {
			return mapping, err
		}
	}
	if recent && last.err != nil {
		return nil, last.err
	}
	select {
	case result := <-k.looks.DoChan("", k.look):
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(meta.RESTMapper).RESTMapping(gk, versions...) //nolint:forcetypeassert // nothing else is returned
	case <-time.After(liveTimeout):
		return nil, errors.New("the API server does not say in time what it serves")
	}
}

// look looks at all that is served. What was known stays where that fails.
func (k *Kinds) look() (any, error) {
	at := time.Now()
	groups, err := restmapper.GetAPIGroupResources(k.Discovery)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last.err, k.last.at = err, at
	if err == nil {
		k.last.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	}
	return k.last.mapper, err
}
