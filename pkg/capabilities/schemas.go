// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/openapi"
	"k8s.io/kube-openapi/pkg/spec3"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/heirloom-dev/heirloom/pkg/broadcast"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Schemas holds the known schemas of control planes. An API server silently drops a field that a CRD lacks, the two versions of the
// contract have the same fields at different paths, and the version of a provider's API does not show which version of the contract it
// follows. Only the schema shows it. API servers publish the schemas of all kinds as OpenAPI documents, one for each group version, to
// every client: reading CRDs would need another right and a cache of large objects.
//
// It is a manager.Runnable that runs on every replica, because every replica answers admission requests.
type Schemas struct {
	// Broadcaster sends an event when a known document has changed.
	broadcast.Broadcaster
	// Client reads the documents that the API server publishes. Its requests take no context, so they need their own timeout: otherwise a
	// request that hangs blocks all requests after it.
	Client openapi.Client
	// Interval is the time between two checks whether the schemas have changed.
	Interval time.Duration
	// UnknownFor is how long a kind that the API server does not publish counts as unknown before Heirloom asks again: any sender of
	// admission requests can choose the kind.
	UnknownFor time.Duration

	fetches singleflight.Group
	index   atomic.Pointer[index]
	known   sync.Map // from schema.GroupVersion to *document
}

// index has the documents that the API server published at the last request.
type index struct {
	paths map[string]openapi.GroupVersion
	at    time.Time
}

// document is the part of the published document of a group version that the rules need. It is immutable.
type document struct {
	url     string                    // contains a hash of the contents
	layouts map[string]inherit.Layout // by kind
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Schemas) NeedLeaderElection() bool { return false }

// Start checks for changes until ctx is done.
func (s *Schemas) Start(ctx context.Context) error {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := s.refresh(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to check the schema of control planes; keeping the last result")
		}
	}, s.Interval, 0.1, true)
	return nil
}

// ControlPlane returns the layout of a control plane's kind; the caller must not change it. If the kind is not known yet, it asks the API
// server. After an error, or if the API server does not know the kind, a later call asks again.
func (s *Schemas) ControlPlane(ctx context.Context, gvk schema.GroupVersionKind) (inherit.Layout, error) {
	if gvk.Group != inherit.ControlPlaneGroup {
		return inherit.Layout{}, fmt.Errorf("%s is not a kind of control plane", gvk.GroupKind())
	}
	gv := gvk.GroupVersion()
	if known := s.lookup(gv); known != nil {
		if layout, ok := known.layouts[gvk.Kind]; ok {
			return layout, nil
		}
	}
	doc, err := s.fetch(ctx, gv)
	if err != nil {
		return inherit.Layout{}, err
	}
	layout, ok := doc.layouts[gvk.Kind]
	if !ok {
		return inherit.Layout{}, fmt.Errorf("the API server publishes no schema of kind %s of %s", gvk.Kind, gv)
	}
	return layout, nil
}

// refresh reads each known document again if it has changed, and drops it if it is no longer published.
func (s *Schemas) refresh(ctx context.Context) error {
	paths, err := s.paths(ctx, 0)
	if err != nil {
		return err
	}
	var failed []error
	for key := range s.known.Range {
		gv, _ := key.(schema.GroupVersion)
		if _, published := paths[indexKey(gv)]; !published {
			s.known.Delete(gv)
			continue
		}
		_, err := s.fetch(ctx, gv)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// paths returns the published documents by path, from an index that is at most age old.
func (s *Schemas) paths(ctx context.Context, age time.Duration) (map[string]openapi.GroupVersion, error) {
	if last := s.index.Load(); last != nil && time.Since(last.at) < age {
		return last.paths, nil
	}
	paths, err := share(ctx, &s.fetches, "index", func() (map[string]openapi.GroupVersion, error) {
		if last := s.index.Load(); last != nil && time.Since(last.at) < age { // of a read that has just ended
			return last.paths, nil
		}
		at := time.Now()
		paths, err := s.Client.Paths()
		if err == nil {
			s.index.Store(&index{paths: paths, at: at})
		}
		return paths, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the index of schemas: %w", err)
	}
	return paths, nil
}

// fetch reads the document of a group version, once for all callers. If the known document is still published, fetch returns it without a
// read. A group version that is not published costs no request except for the index.
func (s *Schemas) fetch(ctx context.Context, gv schema.GroupVersion) (*document, error) {
	paths, err := s.paths(ctx, s.UnknownFor)
	if err != nil {
		return nil, err
	}
	published, ok := paths[indexKey(gv)]
	if !ok {
		return nil, fmt.Errorf("reading the schemas of %s: the API server publishes none", gv)
	}
	doc, err := share(ctx, &s.fetches, indexKey(gv), func() (*document, error) {
		before := s.lookup(gv) // perhaps of a read that has just ended
		if before != nil && before.url == published.ServerRelativeURL() {
			return before, nil
		}
		doc, err := read(published, gv)
		if err != nil {
			return nil, err
		}
		s.known.Store(gv, doc)
		if before != nil && before.url != doc.url {
			ctrl.LoggerFrom(ctx).Info("Schema of control planes changed", "groupVersion", gv.String())
			s.Publish()
		}
		return doc, nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the schemas of %s: %w", gv, err)
	}
	return doc, nil
}

// share runs read once for all concurrent callers with the same key, and returns its result. The client's requests take no context: a
// caller that cannot wait any longer leaves, and the request continues for the others.
func share[T any](ctx context.Context, group *singleflight.Group, key string, read func() (T, error)) (T, error) {
	result := group.DoChan(key, func() (any, error) { return read() })
	var value T
	select {
	case <-ctx.Done():
		return value, ctx.Err()
	case r := <-result:
		value, _ = r.Val.(T)
		return value, r.Err
	}
}

func read(published openapi.GroupVersion, gv schema.GroupVersion) (*document, error) {
	raw, err := published.Schema(runtime.ContentTypeJSON)
	if err != nil {
		return nil, err
	}
	contents := &spec3.OpenAPI{}
	if err := json.Unmarshal(raw, contents); err != nil {
		return nil, err
	}
	return &document{url: published.ServerRelativeURL(), layouts: layouts(contents, gv)}, nil
}

// indexKey returns the key of a group version in the index. Control planes are custom resources, so they always have a group.
func indexKey(gv schema.GroupVersion) string {
	return "apis/" + gv.Group + "/" + gv.Version
}

func (s *Schemas) lookup(gv schema.GroupVersion) *document {
	known, _ := s.known.Load(gv)
	doc, _ := known.(*document)
	return doc
}
