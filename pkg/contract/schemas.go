// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/openapi"
	"k8s.io/kube-openapi/pkg/spec3"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/heirloom-dev/heirloom/pkg/broadcast"
	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// Schemas holds what is known of the schemas of control planes. It is a manager.Runnable that runs on every replica,
// because every replica answers admission requests.
type Schemas struct {
	// Broadcaster tells when a layout that was known has changed.
	broadcast.Broadcaster
	// Client reads what the API server publishes. Its requests take no context, so they need a timeout of their own, or
	// one that hangs stands in the way of all that follow.
	Client openapi.Client
	// Interval is how often the API server is asked whether the schemas have changed.
	Interval time.Duration

	fetches singleflight.Group
	mu      sync.RWMutex
	known   map[schema.GroupVersion]*document
}

// document is what is kept of the published document of a group version. It does not change.
type document struct {
	// url is where the document was. It has a hash of the contents.
	url string
	// layouts are by kind.
	layouts map[string]capi.Layout
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Schemas) NeedLeaderElection() bool { return false }

// Start looks for changes until ctx is done.
func (s *Schemas) Start(ctx context.Context) error {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := s.refresh(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to find out whether the schema of control planes changed; what was known stays in force")
		}
	}, s.Interval, 0.1, true)
	return nil
}

// ControlPlane returns the layout of a control plane's kind, which the caller must not change. It asks the API server if
// the kind is not known yet, and the next time again if that failed or the API server does not know the kind either.
func (s *Schemas) ControlPlane(ctx context.Context, gvk schema.GroupVersionKind) (capi.Layout, error) {
	gv := gvk.GroupVersion()
	doc := s.lookup(gv)
	if doc != nil {
		if layout, ok := doc.layouts[gvk.Kind]; ok {
			return layout, nil
		}
	}
	doc, err := s.fetch(ctx, gv, doc)
	if err != nil {
		return capi.Layout{}, err
	}
	layout, ok := doc.layouts[gvk.Kind]
	if !ok {
		return capi.Layout{}, fmt.Errorf("the API server publishes no schema of kind %s of %s", gvk.Kind, gv)
	}
	return layout, nil
}

// Machine returns the layout of Machines of that version. Where it cannot be found out, it is that of the newest release.
func (s *Schemas) Machine(ctx context.Context, gvk schema.GroupVersionKind) capi.Layout {
	layout, err := s.ControlPlane(ctx, gvk)
	if err != nil {
		return capi.MachineLayout(gvk.Version)
	}
	return layout
}

// refresh looks which of the documents that are known have changed, and reads those again.
func (s *Schemas) refresh(ctx context.Context) error {
	known := s.all()
	if len(known) == 0 {
		return nil
	}
	index, err := share(ctx, &s.fetches, "index", s.Client.Paths)
	if err != nil {
		return fmt.Errorf("reading the index of schemas: %w", err)
	}
	var failed []error
	for gv, doc := range known {
		published, ok := index[indexKey(gv)]
		switch {
		case !ok:
			s.forget(gv)
		case published.ServerRelativeURL() != doc.url:
			_, err := s.fetch(ctx, gv, doc)
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// fetch reads the document of a group version, once for all who need it at the same time. If what is known is not what
// the caller has seen, then somebody else has just read it.
func (s *Schemas) fetch(ctx context.Context, gv schema.GroupVersion, seen *document) (*document, error) {
	doc, err := share(ctx, &s.fetches, indexKey(gv), func() (*document, error) {
		if doc := s.lookup(gv); doc != nil && doc != seen {
			return doc, nil
		}
		doc, err := s.read(gv)
		if err == nil {
			s.keep(ctx, gv, doc)
		}
		return doc, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the schemas of %s: %w", gv, err)
	}
	return doc, nil
}

// share returns what read returns, to all who ask for the same key while it runs. The client's requests take no context:
// whoever cannot wait any longer leaves, and the request goes on for the others.
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

func (s *Schemas) read(gv schema.GroupVersion) (*document, error) {
	index, err := s.Client.Paths()
	if err != nil {
		return nil, err
	}
	published, ok := index[indexKey(gv)]
	if !ok {
		return nil, errors.New("the API server publishes none")
	}
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

// indexKey is what the index calls a group version. Control planes are custom resources, so they always have a group.
func indexKey(gv schema.GroupVersion) string {
	return "apis/" + gv.Group + "/" + gv.Version
}

func (s *Schemas) lookup(gv schema.GroupVersion) *document {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.known[gv]
}

func (s *Schemas) all() map[schema.GroupVersion]*document {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.known)
}

func (s *Schemas) forget(gv schema.GroupVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, gv)
}

// keep remembers a document and tells subscribers if a layout is another one than before.
func (s *Schemas) keep(ctx context.Context, gv schema.GroupVersion, doc *document) {
	before := s.swap(gv, doc)
	if before == nil || !before.differs(doc) {
		return
	}
	ctrl.LoggerFrom(ctx).Info("The schema of control planes changed", "groupVersion", gv.String())
	s.Publish()
}

func (s *Schemas) swap(gv schema.GroupVersion, doc *document) *document {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[schema.GroupVersion]*document{}
	}
	before := s.known[gv]
	s.known[gv] = doc
	return before
}

// differs reports whether a kind has another layout in the other document. Kinds that come or go do not count: nobody
// was told anything else about them.
func (d *document) differs(other *document) bool {
	for kind, layout := range d.layouts {
		if now, ok := other.layouts[kind]; ok && !reflect.DeepEqual(layout, now) {
			return true
		}
	}
	return false
}
