// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Options configure a Server.
type Options struct {
	// Name is the name of the cluster.
	Name string
	// CRDs are served in addition to the built-in kinds. All Servers with the same pointer to a CRD share the data that is computed from it.
	CRDs []*apiextensionsv1.CustomResourceDefinition
	// Unguarded turns the admission plugin NodeRestriction off.
	Unguarded bool
	// Turn may be nil. It is called before each step whose order matters, and never under the lock; it returns when the step may happen. An
	// *apierrors.StatusError is the answer; any other error breaks the connection.
	Turn func(ctx context.Context, step Step) error
	// Webhook calls an admission webhook with an AdmissionReview in JSON. An error means that the webhook could not be reached.
	Webhook func(ctx context.Context, configuration admissionregistrationv1.MutatingWebhook, body []byte) ([]byte, error)
	// Budget may be nil. It reports whether disruption budgets let no Pod be evicted now.
	Budget func() bool
	// Stored is called under the lock for each stored version of each object. It must neither change the object nor call the Server.
	Stored func(w Write)
}

// Step is the next step of a request.
type Step struct {
	// Phase is "request" (is served), "admit" (a webhook is called), "store" (is written) or "event" (is sent to a watch).
	Phase string
	// User, Method and Path belong to the request; Path has the query without timeouts, and the name of the webhook that is called.
	User, Method, Path string
	// Sequence counts the events of a watch.
	Sequence int
}

// Write is one stored version of an object.
type Write struct {
	User, Verb string
	GVR        schema.GroupVersionResource
	// Before is nil for a creation, After for a deletion.
	Before, After *unstructured.Unstructured
	// Admission is the state of the calls of Heirloom's webhooks in this write: "" (no webhook was called), "reached" or "failed".
	Admission string
}

// Server is an API server with its objects in memory.
type Server struct {
	options Options
	kinds   []*kind // in the order of discovery
	byGVR   map[schema.GroupVersionResource]*kind
	custom  []*prepared
	hooks   hooks

	mu       sync.Mutex
	tables   map[schema.GroupResource]*table
	version  uint64 // the last resourceVersion
	expired  uint64 // the last version without history
	ids      uint64
	watchers []*watcher // in the order of their requests
}

// New returns a Server that has the namespaces of a new cluster and its CRDs.
func New(options Options) (*Server, error) {
	handleErrors()
	s := &Server{options: options, byGVR: map[schema.GroupVersionResource]*kind{}, tables: map[schema.GroupResource]*table{}, version: 1}
	for _, b := range builtins() {
		if err := s.serveBuiltin(b); err != nil {
			return nil, fmt.Errorf("serving %s: %w", b.kind, err)
		}
	}
	for _, crd := range options.CRDs {
		if err := s.serveCRD(crd); err != nil {
			return nil, fmt.Errorf("serving %s: %w", crd.Name, err)
		}
	}
	for _, name := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
		namespace.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
		namespace.Status.Phase = corev1.NamespaceActive
		s.begin(corev1.SchemeGroupVersion.WithResource("namespaces"), namespace)
	}
	for _, crd := range options.CRDs {
		s.begin(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), established(crd))
	}
	return s, nil
}

// begin stores an object that every new cluster has.
func (s *Server) begin(gvr schema.GroupVersionResource, object runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	accessor, _ := meta.Accessor(object)
	accessor.SetUID(s.uid())
	accessor.SetCreationTimestamp(metav1.Now())
	k := s.byGVR[gvr]
	s.store(k.table, accessor.GetName(), nil, k.main.save(object), Write{Verb: "create", GVR: gvr})
}

// uid returns the next UID. Called under the lock.
func (s *Server) uid() types.UID {
	s.ids++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", s.ids))
}

// Objects returns copies of all objects of a kind, sorted by namespace and name, in the requested version.
func (s *Server) Objects(gvr schema.GroupVersionResource) []*unstructured.Unstructured {
	k := s.byGVR[gvr]
	if k == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var objects []*unstructured.Unstructured
	for _, key := range k.table.keys() {
		object := toUnstructured(k.main.load(k.table.objects[key]))
		object.SetGroupVersionKind(k.gvk)
		objects = append(objects, object)
	}
	return objects
}

// CutWatches closes each watch, as a restart does.
func (s *Server) CutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range slices.Clone(s.watchers) {
		w.close()
	}
}

// Expire forgets all history: a watch that asks for it is answered with 410.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = s.version
	for _, t := range s.tables {
		t.history = nil
	}
}

// Mapper returns a mapper that has all kinds, and sends no requests.
func (s *Server) Mapper() meta.RESTMapper {
	var versions []schema.GroupVersion
	for _, k := range s.kinds {
		if !slices.Contains(versions, k.gvr.GroupVersion()) {
			versions = append(versions, k.gvr.GroupVersion())
		}
	}
	mapper := meta.NewDefaultRESTMapper(versions)
	for _, k := range s.kinds {
		scope := meta.RESTScopeRoot
		if k.namespaced {
			scope = meta.RESTScopeNamespace
		}
		mapper.AddSpecific(k.gvk, k.gvr, k.gvr.GroupVersion().WithResource(k.singular), scope)
		mapper.Add(k.gvk.GroupVersion().WithKind(k.gvk.Kind+"List"), scope) // as client-go's discovery mapper does
	}
	return mapper
}

// kind is a resource at a served version.
type kind struct {
	gvr        schema.GroupVersionResource
	gvk        schema.GroupVersionKind
	singular   string
	short      []string
	categories []string
	namespaced bool
	table      *table
	main       *endpoint
	status     *endpoint // nil without the subresource status
	warning    *string   // of a deprecated version, otherwise empty; nil for a built-in kind
}

func (s *Server) add(k *kind) {
	s.kinds, s.byGVR[k.gvr] = append(s.kinds, k), k
	for _, e := range []*endpoint{k.main, k.status} {
		if e != nil {
			e.server, e.kind, e.table = s, k, k.table
		}
	}
}

// table has the stored objects of a resource. These objects are immutable.
type table struct {
	gvr     schema.GroupVersionResource // with the stored version
	objects map[string]runtime.Object
	history []event
}

// event is a change of an object.
type event struct {
	version       uint64
	before, after runtime.Object
}

func (s *Server) tableOf(gvr schema.GroupVersionResource) *table {
	t := s.tables[gvr.GroupResource()]
	if t == nil {
		t = &table{gvr: gvr, objects: map[string]runtime.Object{}}
		s.tables[gvr.GroupResource()] = t
	}
	return t
}

func keyOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// keys returns the keys of all objects, in order.
func (t *table) keys() []string {
	keys := make([]string, 0, len(t.objects))
	for key := range t.objects {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		namespaceA, nameA, _ := strings.Cut(a, "/")
		namespaceB, nameB, _ := strings.Cut(b, "/")
		return cmp.Or(strings.Compare(namespaceA, namespaceB), strings.Compare(nameA, nameB))
	})
	return keys
}

// store replaces before with after, sets the resourceVersion and sends the change to the watches. Called under the lock.
func (s *Server) store(t *table, key string, before, after runtime.Object, w Write) {
	s.version++
	if after == nil {
		delete(t.objects, key)
	} else {
		setVersion(after, s.version)
		t.objects[key] = after
	}
	t.history = append(t.history, event{version: s.version, before: before, after: after})
	for _, watcher := range s.watchers {
		if watcher.endpoint.table == t {
			watcher.tell(t.history[len(t.history)-1])
		}
	}
	if s.options.Stored == nil {
		return
	}
	if before != nil {
		w.Before = toUnstructured(before)
	}
	if after != nil {
		w.After = toUnstructured(after)
	}
	s.options.Stored(w)
}

func setVersion(object runtime.Object, version uint64) {
	accessor, _ := meta.Accessor(object)
	accessor.SetResourceVersion(fmt.Sprint(version))
}

// toUnstructured returns the object itself if it is a custom resource.
func toUnstructured(object runtime.Object) *unstructured.Unstructured {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return u
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(err) // every API type can be encoded as JSON
	}
	u := &unstructured.Unstructured{Object: content}
	if kinds, _, err := scheme.ObjectKinds(object); err == nil {
		u.SetGroupVersionKind(kinds[0])
	}
	return u
}

// handleErrors replaces the error handlers. The default handlers wait according to the time of the last error, which may come from another
// bubble with another time. No event of a watch may be lost silently, unless the client has gone.
var handleErrors = sync.OnceFunc(func() {
	// the handlers exist to be replaced
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(ctx context.Context, err error, message string, _ ...any) {
		if stateOf(ctx) != nil && ctx.Err() == nil && strings.Contains(message, "watch event") {
			panic(fmt.Sprintf("%s: %v", message, err))
		}
	}}
})

var (
	_ http.Handler    = &Server{}
	_ watch.Interface = &watcher{}
)
