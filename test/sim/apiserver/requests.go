// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
)

const (
	// longest is the time limit of a request, longestWatch the time limit of a watch. Clients ask for watches of five to ten minutes, at
	// random.
	longest      = time.Minute
	longestWatch = 5 * time.Minute
	// never is a timeout in seconds. A watch ends itself in time: otherwise the handler would choose at random between its timeout and an
	// event.
	never = "1000000000"
)

var resolver = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// patchTypes has the patch types of custom resources; built-in kinds also have the strategic merge patch.
var patchTypes = []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}

// state has the properties of a request while it is served.
type state struct {
	step      Step
	verb      string
	admission string
	until     time.Time // of a watch
}

type stateKey struct{}

func stateOf(ctx context.Context) *state {
	s, _ := ctx.Value(stateKey{}).(*state)
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := resolver.NewRequestInfo(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	by := &user.DefaultInfo{Name: r.Header.Get(userHeader), Groups: slices.Concat(r.Header[groupHeader], []string{user.AllAuthenticated})}
	now := &state{verb: info.Verb, step: Step{User: by.Name, Method: r.Method, Path: r.URL.Path}}
	ctx := context.WithValue(request.WithUser(request.WithRequestInfo(r.Context(), info), by), stateKey{}, now)
	ctx = audit.WithAuditContext(warning.WithWarningRecorder(ctx, warnings{w.Header()}))
	query := r.URL.Query()
	if info.Verb == "watch" {
		limit := longestWatch
		if asked, err := time.ParseDuration(query.Get("timeoutSeconds") + "s"); err == nil && asked > 0 {
			limit = min(limit, asked)
		}
		now.until = time.Now().Add(limit)
		query.Set("timeoutSeconds", never)
	} else {
		limit := longest
		if asked, err := time.ParseDuration(query.Get("timeout")); err == nil && asked > 0 {
			limit = min(limit, asked)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	if len(query) > 0 {
		now.step.Path = described(r.URL.Path, query)
		target := *r.URL
		target.RawQuery = query.Encode()
		r = r.Clone(ctx)
		r.URL = &target
	} else {
		r = r.WithContext(ctx)
	}
	if err := s.turn(ctx, "request"); err != nil {
		fail(err, w, r)
		return
	}
	s.serve(w, r, info)
}

// described returns the path with the query, but without timeouts, which clients choose at random.
func described(path string, query url.Values) string {
	shown := url.Values{}
	for key, values := range query {
		if key != "timeout" && key != "timeoutSeconds" {
			shown[key] = values
		}
	}
	if len(shown) == 0 {
		return path
	}
	return path + "?" + shown.Encode()
}

type warnings struct{ header http.Header }

// AddWarning implements warning.Recorder.
func (w warnings) AddWarning(agent, text string) {
	if value, err := net.NewWarningHeader(299, agent, text); err == nil {
		w.header.Add("Warning", value)
	}
}

func fail(err error, w http.ResponseWriter, r *http.Request) {
	responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, r)
}

// turn waits for the turn of a step. It returns the error to answer with; to break the connection, it panics, as net/http expects.
func (s *Server) turn(ctx context.Context, phase string) error { return s.turnOf(ctx, phase, "") }

func (s *Server) turnOf(ctx context.Context, phase, suffix string) error {
	if s.options.Turn == nil {
		return nil
	}
	step := stateOf(ctx).step
	step.Phase, step.Path = phase, step.Path+suffix
	err := s.options.Turn(ctx, step)
	if status := apierrors.APIStatus(nil); err != nil && !errors.As(err, &status) {
		panic(http.ErrAbortHandler)
	}
	return err
}

// event waits for the turn of an event of a watch.
func (s *Server) event(ctx context.Context, sequence int) error {
	if s.options.Turn == nil {
		return nil
	}
	step := stateOf(ctx).step
	step.Phase, step.Sequence = "event", sequence
	return s.options.Turn(ctx, step)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	k := s.byGVR[gvr]
	switch {
	case !info.IsResourceRequest:
		s.describe(w, r)
		return
	case k != nil && k.warning != nil && !k.hasSubresource(info):
		fail(apierrors.NewNotFound(gvr.GroupResource(), info.Name), w, r)
		return
	case k != nil && evicts(info):
		s.evict(k, w, r, info)
		return
	case k == nil || !k.hasSubresource(info) || !k.namespaced && info.Namespace != "" && info.Resource != "namespaces":
		http.NotFound(w, r)
		return
	case refused(r.Context(), info):
		by, _ := request.UserFrom(r.Context())
		fail(forbidden(gvr.GroupResource(), info, by.GetName()), w, r)
		return
	}
	if k.warning != nil && *k.warning != "" {
		warning.AddWarning(r.Context(), "", *k.warning)
	}
	k.endpoint(info).handler(info.Verb)(w, r)
}

// endpoint returns the endpoint of the kind or of its status.
func (k *kind) endpoint(info *request.RequestInfo) *endpoint {
	if info.Subresource != "" {
		return k.status
	}
	return k.main
}

// hasSubresource reports whether the kind has the requested subresource, if there is one.
func (k *kind) hasSubresource(info *request.RequestInfo) bool {
	return info.Subresource == "" || info.Subresource == "status" && k.status != nil
}

// handler returns the handler of k8s.io/apiserver for a verb.
func (e *endpoint) handler(verb string) http.HandlerFunc {
	admit := admitter{e.server}
	switch verb {
	case "get":
		return handlers.GetResource(e, e.scope)
	case "list", "watch":
		return handlers.ListResource(e, e, e.scope, false, longest)
	case "create":
		return handlers.CreateResource(e, e.scope, admit)
	case "update":
		return handlers.UpdateResource(e, e.scope, admit)
	case "patch":
		return handlers.PatchResource(e, e.scope, admit, e.patchTypes)
	case "delete":
		return handlers.DeleteResource(e, true, e.scope, admit)
	case "deletecollection":
		return handlers.DeleteCollection(e, true, e.scope, admit)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		fail(apierrors.NewMethodNotSupported(e.resource(), verb), w, r)
	}
}
