// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"context"
	"fmt"
	"net/http"
	"sync"
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
func TestFailuresAreNotKept(t *testing.T) {
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

// A caller that asks during a fetch waits for the same fetch. A caller that gives up does not cancel it for the others.
func TestFetchIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		server := newAPIServer()
		server.serve(t, "v1", crd(t, "NewerControlPlane", "v1", newer()))
		s := &Schemas{Client: server.client(t)}
		held, release := make(chan struct{}), make(chan struct{})
		server.document = func(w http.ResponseWriter, r *http.Request) {
			close(held)
			<-release
			server.HandleGroupVersion(w, r)
		}
		ask := func(ctx context.Context) <-chan error {
			answer := make(chan error, 1)
			go func() {
				_, err := s.ControlPlane(ctx, kindOf("v1", "NewerControlPlane"))
				answer <- err
			}()
			return answer
		}

		ctx, cancel := context.WithCancel(t.Context())
		impatient := ask(ctx)
		<-held
		waiting := make([]<-chan error, 10)
		for i := range waiting {
			waiting[i] = ask(t.Context())
		}
		synctest.Wait()
		cancel()
		Expect(<-impatient).To(MatchError(context.Canceled), "the fetch has not ended yet")
		Expect(server.documents.Load()).To(BeEquivalentTo(1))
		close(release)

		for _, answer := range waiting {
			Expect(<-answer).NotTo(HaveOccurred())
		}
		Expect(server.documents.Load()).To(BeEquivalentTo(1))
	})
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

func TestRefreshDropsWhatIsGone(t *testing.T) {
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
	Expect := NewWithT(t).Expect
	server := newAPIServer()
	server.serve(t, "v1", crd(t, "TestControlPlane", "v1", older()))
	s := &Schemas{Client: server.client(t), Interval: time.Millisecond}
	Expect(s.NeedLeaderElection()).To(BeFalse())
	changes := s.Subscribe()
	_, err := s.ControlPlane(t.Context(), kindOf("v1", "TestControlPlane"))
	Expect(err).NotTo(HaveOccurred())

	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- s.Start(ctx) }()
	server.serve(t, "v1", crd(t, "TestControlPlane", "v1", newer()))
	NewWithT(t).Eventually(changes).WithTimeout(10 * time.Second).Should(Receive())
	cancel()
	Expect(<-stopped).NotTo(HaveOccurred())
}

// For any number of forged versions and kinds, the API server is asked for its index once per UnknownFor.
func TestWhatIsUnknownIsRemembered(t *testing.T) {
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

// While the API server does not answer, callers leave when their context ends, and leave no request behind: all of them share one request.
func TestForgedVersionsLeaveNoRequestsBehind(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := newAPIServer()
	s := &Schemas{Client: server.client(t), UnknownFor: time.Hour}
	held, release := make(chan struct{}, 1000), make(chan struct{})
	server.index = func(w http.ResponseWriter, r *http.Request) {
		held <- struct{}{}
		<-release
		server.HandleDiscovery(w, r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for i := range 500 {
		asking.Go(func() {
			_, err := s.ControlPlane(ctx, kindOf(fmt.Sprintf("v%d", i), "TestControlPlane"))
			Expect(err).To(HaveOccurred())
		})
	}
	<-held
	cancel()
	asking.Wait()
	close(release)
	Expect(held).To(BeEmpty())
	Expect(server.indexes.Load()).To(BeEquivalentTo(1))
}
