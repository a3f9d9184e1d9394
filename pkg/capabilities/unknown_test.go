// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// However many versions and kinds somebody makes up, the API server is asked once for a while what there is.
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
	s.UnknownFor = 0 // the while is over
	_, err = s.ControlPlane(t.Context(), kindOf("v2", "TestControlPlane"))
	Expect(err).NotTo(HaveOccurred())
}

// While the API server does not answer, callers leave when they cannot wait any longer, and leave nothing behind: one
// request is on its way for all of them.
func TestForgedVersionsLeaveNoRequestsBehind(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := newAPIServer()
	s := &Schemas{Client: server.client(t), UnknownFor: time.Hour}
	held, release := make(chan struct{}, 1000), make(chan struct{})
	server.answerIndexWith(func(w http.ResponseWriter, r *http.Request) {
		held <- struct{}{}
		<-release
		server.HandleDiscovery(w, r)
	})
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
