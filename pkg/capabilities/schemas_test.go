// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

var (
	_ manager.Runnable               = &Schemas{}
	_ manager.LeaderElectionRunnable = &Schemas{}
)

func unavailable(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "not now", http.StatusInternalServerError)
}

// A failed request is repeated, and known schemas stay.
func TestFailedFetchesAreRepeated(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := newAPIServer()
	s := &Schemas{Client: server.client(t)}
	ask := func(kind string) error {
		_, err := s.ControlPlane(t.Context(), kindOf("v1", kind))
		return err
	}

	Expect(ask("FirstControlPlane")).To(MatchError(ContainSubstring(group+"/v1: the API server publishes none")), "no such group version")

	server.serve(t, "v1", crd(t, "FirstControlPlane", "v1", newer()))
	server.document = unavailable
	Expect(ask("FirstControlPlane")).To(MatchError(ContainSubstring("not now")))
	server.document = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("[]")) }
	Expect(ask("FirstControlPlane")).To(MatchError(ContainSubstring("unmarshal JSON array")))
	server.document = nil
	Expect(ask("FirstControlPlane")).To(Succeed())

	Expect(ask("SecondControlPlane")).To(MatchError("the API server publishes no schema of kind SecondControlPlane of " + group + "/v1"))
	server.serve(t, "v1", crd(t, "FirstControlPlane", "v1", newer()), crd(t, "SecondControlPlane", "v1", older()))
	Expect(ask("SecondControlPlane")).To(Succeed())

	asked := server.documents.Load()
	server.document = unavailable
	Expect(ask("ThirdControlPlane")).To(MatchError(ContainSubstring("publishes no schema of kind ThirdControlPlane")))
	Expect(ask("FirstControlPlane")).To(Succeed())
	Expect(server.documents.Load()).To(Equal(asked), "an unchanged document is not fetched again")
}

// A document is read again when its hash changes, and subscribers are notified.
func TestRefresh(t *testing.T) {
	const known = "TestControlPlane"
	for _, tc := range []struct {
		name string
		// change changes the API server once the kind of contract v1beta1 is known.
		change    func(t *testing.T, server *apiServer)
		documents int32
		newer     bool
		told      bool
		problem   string
	}{
		{name: "nothing changed", change: func(*testing.T, *apiServer) {}},
		{
			name: "the kind has new fields", documents: 1, newer: true, told: true,
			change: func(t *testing.T, server *apiServer) { server.serve(t, "v1", crd(t, known, "v1", newer())) },
		},
		{
			name: "the kind has new fields that are not ours", documents: 1, told: true,
			change: func(t *testing.T, server *apiServer) {
				server.serve(t, "v1", crd(t, known, "v1", older(), "version: {type: string}"))
			},
		},
		{
			name:   "another group version comes",
			change: func(t *testing.T, server *apiServer) { server.serve(t, "v2", crd(t, known, "v2", newer())) },
		},
		{
			name: "the new document cannot be read", documents: 1, problem: "not now",
			change: func(t *testing.T, server *apiServer) {
				server.serve(t, "v1", crd(t, known, "v1", newer()))
				server.document = unavailable
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			server := newAPIServer()
			server.serve(t, "v1", crd(t, known, "v1", older()))
			s := &Schemas{Client: server.client(t)}
			changes := s.Subscribe()
			_, err := s.ControlPlane(t.Context(), kindOf("v1", known))
			Expect(err).NotTo(HaveOccurred())
			Expect(changes).NotTo(Receive(), "nothing was known before")
			before := server.documents.Load()
			var logged []string
			ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))

			tc.change(t, server)
			err = s.refresh(ctx)

			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			}
			Expect(server.documents.Load() - before).To(Equal(tc.documents))
			Expect(len(changes) == 1).To(Equal(tc.told))
			if tc.told {
				Expect(logged).To(ConsistOf(And(
					ContainSubstring("Schema of control planes changed"), ContainSubstring(group+"/v1"))))
			} else {
				Expect(logged).To(BeEmpty())
			}
			Expect(s.ControlPlane(t.Context(), kindOf("v1", known))).To(HaveField("Template.Durations", !tc.newer))
			Expect(server.documents.Load()-before).To(Equal(tc.documents), "answered from memory")
		})
	}
}

func TestRefreshDropsDeletedVersions(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := newAPIServer()
	server.serve(t, "v1", crd(t, "TestControlPlane", "v1", older()))
	s := &Schemas{Client: server.client(t)}
	_, err := s.ControlPlane(t.Context(), kindOf("v1", "TestControlPlane"))
	Expect(err).NotTo(HaveOccurred())

	server.DeleteGroupVersion("apis/" + group + "/v1")
	Expect(s.refresh(t.Context())).To(Succeed())

	_, err = s.ControlPlane(t.Context(), kindOf("v1", "TestControlPlane"))
	Expect(err).To(MatchError(ContainSubstring("publishes none")))
}

// Start runs on every replica, until the manager stops.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		server := newAPIServer()
		server.serve(t, "v1", crd(t, "TestControlPlane", "v1", older()))
		s := &Schemas{Client: server.client(t), Interval: time.Minute}
		Expect(s.NeedLeaderElection()).To(BeFalse())
		changes := s.Subscribe()
		_, err := s.ControlPlane(t.Context(), kindOf("v1", "TestControlPlane"))
		Expect(err).NotTo(HaveOccurred())
		time.AfterFunc(time.Hour, func() { server.serve(t, "v1", crd(t, "TestControlPlane", "v1", newer())) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour+2*time.Minute)
		defer cancel()
		Expect(s.Start(ctx)).To(Succeed())
		Expect(changes).To(Receive())
	})
}

// For any number of forged versions and kinds, the API server is asked for its index once per UnknownFor.
func TestUnknownKindsAreRemembered(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := newAPIServer()
	server.serve(t, "v1", crd(t, "TestControlPlane", "v1", newer()))
	s := &Schemas{Client: server.client(t), UnknownFor: time.Hour}
	_, err := s.ControlPlane(t.Context(), kindOf("v1", "TestControlPlane"))
	Expect(err).NotTo(HaveOccurred())
	for i := range 500 {
		_, err := s.ControlPlane(t.Context(), kindOf(fmt.Sprintf("v%d", i+2), "TestControlPlane"))
		Expect(err).To(MatchError(ContainSubstring("the API server publishes none")))
		_, err = s.ControlPlane(t.Context(), kindOf("v1", fmt.Sprintf("Forged%d", i)))
		Expect(err).To(MatchError(ContainSubstring("publishes no schema of kind")))
		_, err = s.ControlPlane(t.Context(), schema.GroupVersionKind{Group: fmt.Sprintf("g%d", i), Version: "v1", Kind: "Deployment"})
		Expect(err).To(MatchError(ContainSubstring("is not a kind of control plane")))
	}
	Expect(server.indexes.Load()).To(BeEquivalentTo(1))
	Expect(server.documents.Load()).To(BeEquivalentTo(1))
	known := 0
	for range s.known.Range {
		known++
	}
	Expect(known).To(Equal(1))

	server.serve(t, "v2", crd(t, "TestControlPlane", "v2", newer()))
	s.UnknownFor = 0 // the period is over
	_, err = s.ControlPlane(t.Context(), kindOf("v2", "TestControlPlane"))
	Expect(err).NotTo(HaveOccurred())
}

// While the API server does not answer, all callers share one request. A caller leaves when its context ends: the request goes on for the
// others, and no request is left behind.
func TestForgedVersionsLeaveNoRequestsBehind(t *testing.T) {
	for held, version := range map[string]string{"index": "forged-%d", "document": "v1"} {
		synctest.Test(t, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			server, release := newAPIServer(), make(chan struct{})
			server.serve(t, "v1", crd(t, "TestControlPlane", "v1", newer()))
			wait := func(published http.HandlerFunc) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					<-release
					published(w, r)
				}
			}
			if held == "index" {
				server.index = wait(server.HandleDiscovery)
			} else {
				server.document = wait(server.HandleGroupVersion)
			}
			s := &Schemas{Client: server.client(t), UnknownFor: time.Hour}
			ask := func(ctx context.Context, version string, answers chan<- error) {
				_, err := s.ControlPlane(ctx, kindOf(version, "TestControlPlane"))
				answers <- err
			}
			ctx, cancel := context.WithCancel(t.Context())
			impatient, patient := make(chan error), make(chan error)
			for i := range 500 {
				go ask(ctx, strings.Replace(version, "%d", strconv.Itoa(i), 1), impatient)
			}
			for range 10 {
				go ask(t.Context(), "v1", patient)
			}
			synctest.Wait()
			cancel()
			for range 500 {
				Expect(<-impatient).To(MatchError(context.Canceled), held)
			}
			close(release)
			for range 10 {
				Expect(<-patient).NotTo(HaveOccurred())
			}
			Expect([]int32{server.indexes.Load(), server.documents.Load()}).To(Equal([]int32{1, 1}))
		})
	}
}
