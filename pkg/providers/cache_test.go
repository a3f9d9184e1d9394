// SPDX-License-Identifier: Apache-2.0

package providers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/providers"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

const group = "infrastructure.cluster.x-k8s.io"

// server is an API server that lists one object "one" of each kind, unless the kind is broken.
type server struct {
	mu     sync.Mutex
	broken map[string]func(http.ResponseWriter, *http.Request)
}

// set makes every request about the plural be answered so; nil: as it should be.
func (s *server) set(plural string, answer func(http.ResponseWriter, *http.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[plural] = answer
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	plural := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	s.mu.Lock()
	broken := s.broken[plural]
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Query().Get("sendInitialEvents") != "": // as an older API server
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents: Forbidden")
	case broken != nil:
		broken(w, r)
	case r.URL.Query().Get("watch") != "":
		<-r.Context().Done()
	default:
		gv := strings.TrimPrefix(strings.TrimSuffix(r.URL.Path, "/"+plural), "/apis/")
		fmt.Fprintf(w, `{"apiVersion":%q,"kind":"List","metadata":{"resourceVersion":"1"},"items":[{"apiVersion":%q,"kind":"%s","metadata":{"name":"one","namespace":"ns"}}]}`,
			gv, gv, kinds()[plural])
	}
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	})
}

func kinds() map[string]string {
	return map[string]string{"fines": "Fine", "refusings": "Refusing", "silents": "Silent"}
}

// run returns a cache of the server's kinds, which runs until the test ends.
func run(t *testing.T, s *server, namespaces ...string) *providers.Cache {
	t.Helper()
	c := newCache(t, s, namespaces...)
	var stopped sync.WaitGroup
	stopped.Go(func() {
		if err := c.Start(t.Context()); err != nil {
			t.Errorf("the cache stopped: %v", err)
		}
	})
	t.Cleanup(stopped.Wait)
	return c
}

func newCache(t *testing.T, s *server, namespaces ...string) *providers.Cache {
	t.Helper()
	Expect := NewWithT(t).Expect
	api := httptest.NewServer(s)
	t.Cleanup(api.Close)
	mapper := meta.NewDefaultRESTMapper(nil)
	for plural, kind := range kinds() {
		gv := schema.GroupVersion{Group: group, Version: "v1beta2"}
		mapper.AddSpecific(gv.WithKind(kind), gv.WithResource(plural), gv.WithResource(strings.ToLower(kind)), meta.RESTScopeNamespace)
	}
	options := cache.Options{HTTPClient: api.Client(), Scheme: runtime.NewScheme(), Mapper: mapper, DefaultNamespaces: map[string]cache.Config{}}
	for _, namespace := range namespaces {
		options.DefaultNamespaces[namespace] = cache.Config{}
	}
	c, err := providers.New(&rest.Config{Host: api.URL}, options)
	Expect(err).NotTo(HaveOccurred())
	return c
}

func of(kind string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1beta2", Kind: kind})
	return object
}

var one = client.ObjectKey{Namespace: "ns", Name: "one"}

// A kind that cannot be listed makes its own readers fail, each with the reason, and nobody else.
func TestAKindThatCannotBeListed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		plural, kind string
		broken       func(http.ResponseWriter, *http.Request)
		reason       string
	}{
		"its conversion webhook is dead": {"refusings", "Refusing", func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "conversion webhook failed")
		}, "conversion webhook failed"},
		"the right is missing": {"refusings", "Refusing", func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "cannot list")
		}, "cannot list"},
		"its CustomResourceDefinition is on its way out": {"refusings", "Refusing", func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such resource")
		}, "no such resource"},
		"the API server cannot fill its own cache, and says nothing": {"silents", "Silent", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("limit") != "1" {
				<-r.Context().Done()
			}
			refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "conversion webhook failed")
		}, "conversion webhook failed"},
		"nobody answers": {"silents", "Silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			s := &server{broken: map[string]func(http.ResponseWriter, *http.Request){}}
			s.set(tc.plural, tc.broken)
			c := run(t, s)
			var notListed *providers.NotListedError
			g.Eventually(func(g Gomega) {
				err := c.Get(t.Context(), one, of(tc.kind))
				g.Expect(errors.As(err, &notListed)).To(BeTrue(), "%v", err)
				g.Expect(notListed.Reason).To(MatchError(ContainSubstring(tc.reason)))
			}).WithTimeout(time.Minute).Should(Succeed())
			g.Expect(notListed.Error()).NotTo(ContainSubstring(tc.reason), "it may name objects of other namespaces")
			g.Expect(notListed.Kind).To(Equal(tc.kind + "." + group))
			g.Expect(client.IgnoreNotFound(notListed)).To(HaveOccurred(), "whether the object exists nobody knows")

			g.Eventually(func() error { return c.Get(t.Context(), one, of("Fine")) }).WithTimeout(time.Minute).Should(Succeed())
			g.Expect(c.Listed()).To(Equal(map[string]bool{"Fine." + group: true, tc.kind + "." + group: false}))
			if tc.plural == "silents" {
				return // the request that is under way is not answered any more
			}
			s.set(tc.plural, nil)
			g.Eventually(func() error { return c.Get(t.Context(), one, of(tc.kind)) }).WithTimeout(time.Minute).Should(Succeed())
			g.Expect(c.Listed()).To(HaveKeyWithValue(tc.kind+"."+group, true))
		})
	}
}

// With the chart's value namespace there are no rights anywhere else.
func TestTheReasonIsThatOfTheNamespace(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := &server{broken: map[string]func(http.ResponseWriter, *http.Request){}}
	s.set("refusings", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.Contains(r.URL.Path, "/namespaces/ns/"):
			t.Errorf("%s was asked for", r.URL.Path)
		case r.URL.Query().Get("limit") != "1":
			<-r.Context().Done()
		default:
			refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "conversion webhook failed")
		}
	})
	c := run(t, s, "ns")
	g.Eventually(func() error {
		var notListed *providers.NotListedError
		errors.As(c.Get(t.Context(), one, of("Refusing")), &notListed)
		return notListed.Reason
	}).WithTimeout(time.Minute).Should(MatchError(ContainSubstring("conversion webhook failed")))
}

// Webhooks may be asked before the caches are started.
func TestACacheThatIsNotStartedHasListedNothing(t *testing.T) {
	g := NewWithT(t)
	c := newCache(t, &server{})
	g.Expect(errors.As(c.Get(t.Context(), one, of("Fine")), new(*providers.NotListedError))).To(BeTrue())
	g.Expect(c.Listed()).To(Equal(map[string]bool{"Fine." + group: false}))
	g.Expect(c.NeedLeaderElection()).To(BeFalse())
}

// Who has no time does not wait for the kind's grace.
func TestAReaderWithoutTimeDoesNotWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &server{broken: map[string]func(http.ResponseWriter, *http.Request){}}
	s.set("silents", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	NewWithT(t).Expect(errors.As(run(t, s).Get(ctx, one, of("Silent")), new(*providers.NotListedError))).To(BeTrue())
}

func TestAKindThatIsNotServedIsNotWaitedFor(t *testing.T) {
	g := NewWithT(t)
	c := run(t, &server{})
	g.Expect(meta.IsNoMatchError(c.Get(t.Context(), one, of("Unknown")))).To(BeTrue())
	g.Expect(c.Listed()).To(BeEmpty())
}

func TestOnlyNotListed(t *testing.T) {
	other := errors.New("other")
	notListed := &providers.NotListedError{Kind: "Fine." + group, Reason: errors.Join(other, other)}
	for _, tc := range []struct {
		err  error
		only bool
	}{
		{nil, false},
		{other, false},
		{notListed, true},
		{fmt.Errorf("reading: %w", notListed), true},
		{errors.Join(notListed, nil), true},
		{errors.Join(notListed, other), false},
		{errors.Join(notListed, errors.Join(fmt.Errorf("reading: %w", notListed))), true},
		{errors.Join(notListed, errors.Join(notListed, other)), false},
	} {
		NewWithT(t).Expect(providers.OnlyNotListed(tc.err)).To(Equal(tc.only), "%v", tc.err)
	}
	NewWithT(t).Expect(&providers.NotListedError{Kind: "Fine." + group}).To(MatchError("Fine." + group + " has not been listed yet"))
}

// asked is a reader that only remembers.
type asked struct{ times int }

func (a *asked) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	a.times++
	return nil
}

func (a *asked) List(context.Context, client.ObjectList, ...client.ListOption) error {
	a.times++
	return nil
}

// The manager's cache waits for all that it has, so no provider's kind may get there.
func TestKindsOfProvidersAreReadFromTheirOwnCache(t *testing.T) {
	g := NewWithT(t)
	core, own := &asked{}, &asked{}
	reader := providers.Reader{Reader: core, Providers: own}
	for _, object := range []client.Object{of("Fine"), &unstructured.Unstructured{}} {
		g.Expect(reader.Get(t.Context(), one, object)).To(Succeed())
	}
	for _, list := range []client.ObjectList{&metav1.PartialObjectMetadataList{}, &unstructured.UnstructuredList{}} {
		g.Expect(reader.List(t.Context(), list)).To(Succeed())
	}
	g.Expect(core.times).To(BeZero())
	g.Expect(own.times).To(Equal(4))
	g.Expect(reader.Get(t.Context(), one, &typed{})).To(Succeed())
	g.Expect(reader.List(t.Context(), &typedList{})).To(Succeed())
	g.Expect(core.times).To(Equal(2))
	g.Expect(own.times).To(Equal(4))
}

type (
	typed     struct{ client.Object }
	typedList struct{ client.ObjectList }
)
