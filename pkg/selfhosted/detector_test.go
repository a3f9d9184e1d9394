// SPDX-License-Identifier: Apache-2.0

package selfhosted_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/selfhosted"
)

// world is what a detector finds.
type world struct {
	*WithT
	*selfhosted.Detector
	t          *testing.T
	now        time.Time
	candidates []*clusterv1.Cluster
	mu         sync.Mutex
	proofs     map[string]bool
	errs       map[string]error
	asked      []string
}

func newWorld(t *testing.T, clusters ...string) *world {
	t.Helper()
	w := &world{WithT: NewWithT(t), t: t, now: time.Unix(0, 0), proofs: map[string]bool{}, errs: map[string]error{}}
	for _, name := range clusters {
		w.candidates = append(w.candidates, named(name, name))
	}
	w.Detector = &selfhosted.Detector{
		Candidates: func(context.Context) ([]*clusterv1.Cluster, error) { return w.candidates, w.errs["candidates"] },
		Prove: func(_ context.Context, cluster types.NamespacedName) (bool, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked = append(w.asked, cluster.Name)
			return w.proofs[cluster.Name], w.errs[cluster.Name]
		},
		Interval: 10 * time.Minute, Now: func() time.Time { return w.now },
	}
	return w
}

func named(name, uid string) *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}}
}

// after looks once, so much later, and returns who was asked.
func (w *world) after(d time.Duration) []string {
	w.t.Helper()
	w.now, w.asked = w.now.Add(d), nil
	w.Expect(w.Detect(w.t.Context())).To(Succeed())
	return w.asked
}

func TestTheOneThatProvesItIsFound(t *testing.T) {
	w := newWorld(t, "red", "own")
	changes := w.Subscribe()
	w.Expect(w.Cluster()).To(BeZero(), "it is not known yet")
	w.proofs["own"] = true
	w.Expect(w.after(0)).To(ConsistOf("red", "own"))
	w.Expect(w.Cluster()).To(Equal(types.NamespacedName{Namespace: "ns", Name: "own"}))
	w.Expect(changes).To(Receive())

	w.after(time.Hour)
	w.Expect(changes).NotTo(Receive(), "nothing has changed")
	w.proofs["own"] = false
	w.after(time.Hour)
	w.Expect(w.Cluster()).To(BeZero(), "it is not any more")
	w.Expect(changes).To(Receive())
}

func TestSeveralCountAsNone(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.proofs["a"], w.proofs["b"] = true, true
	w.after(0)
	w.Expect(w.Cluster()).To(BeZero())
	w.Expect(w.Claims()).To(Equal([]types.NamespacedName{{Namespace: "ns", Name: "a"}, {Namespace: "ns", Name: "b"}}))
	w.candidates = w.candidates[:1]
	w.after(0)
	w.Expect(w.Cluster().Name).To(Equal("a"))
}

// A Cluster that is gone or created anew is forgotten at once, whenever it would have been asked again.
func TestAClusterIsForgotten(t *testing.T) {
	w := newWorld(t, "own")
	w.proofs["own"] = true
	w.after(0)
	w.candidates = []*clusterv1.Cluster{named("own", "another")}
	w.proofs["own"] = false
	w.Expect(w.after(time.Second)).To(ConsistOf("own"))
	w.Expect(w.Cluster()).To(BeZero())

	w = newWorld(t, "own")
	w.proofs["own"] = true
	w.after(0)
	w.candidates = nil
	w.Expect(w.after(time.Second)).To(BeEmpty())
	w.Expect(w.Cluster()).To(BeZero())
}

// What could not be found out changes nothing.
func TestWhatIsKnownStaysInForce(t *testing.T) {
	w := newWorld(t, "own")
	w.proofs["own"] = true
	w.after(0)
	w.proofs["own"], w.errs["own"] = false, errors.New("no answer")
	w.Expect(w.after(time.Hour)).To(ConsistOf("own"))
	w.Expect(w.Cluster().Name).To(Equal("own"))
	w.errs["candidates"] = errors.New("no cache")
	w.Expect(w.Detect(t.Context())).To(MatchError("no cache"))
	w.Expect(w.Cluster().Name).To(Equal("own"))
}

// A tenant may make as many candidates as they like: each is asked less and less often.
func TestCandidatesAreNotAskedOverAndOver(t *testing.T) {
	w := newWorld(t, "red")
	asked := 0
	for range int(time.Hour / (5 * time.Second)) {
		asked += len(w.after(5 * time.Second))
	}
	w.Expect(asked).To(BeNumerically("<", 20))
	w.Expect(asked).To(BeNumerically(">", 5))
	w.proofs["red"] = true
	w.after(10 * time.Minute)
	w.Expect(w.Cluster().Name).To(Equal("red"))
	w.Expect(w.after(time.Minute)).To(BeEmpty(), "one that is it is not asked again before the sync period is over")
	w.Expect(w.after(10 * time.Minute)).To(ConsistOf("red"))
}

func TestItRunsOnEveryReplicaUntilItIsStopped(t *testing.T) {
	w := newWorld(t, "own")
	w.proofs["own"] = true
	changes := w.Subscribe()
	w.Expect(w.NeedLeaderElection()).To(BeFalse())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Start(ctx) }()
	<-changes
	stop()
	w.Expect(<-ended).To(Succeed())
}
