// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

var _ interface {
	manager.Runnable
	manager.LeaderElectionRunnable
} = Maker{}

func TestABrokenKeyDoesNotReplaceAGoodOne(t *testing.T) {
	for _, tc := range []struct {
		name    string
		data    map[string][]byte
		problem string
	}{
		{name: "no data", problem: `its "key" has 0 bytes instead of 32`},
		{name: "something else", data: map[string][]byte{"tls.crt": []byte("x")}, problem: `its "key" has 0 bytes instead of 32`},
		{name: "an empty key", data: map[string][]byte{"key": {}}, problem: `its "key" has 0 bytes instead of 32`},
		{name: "a short key", data: map[string][]byte{"key": []byte("hunter2")}, problem: `its "key" has 7 bytes instead of 32`},
		{name: "a long key", data: map[string][]byte{"key": append(key(2), 0)}, problem: `its "key" has 33 bytes instead of 32`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			store, secret := storeWith(t, key(1)), secretWith(nil)
			secret.Data = tc.data
			err := store.Set(secret)
			Expect(err).To(MatchError(And(
				ContainSubstring("the Secret heirloom-system/key has no usable key"), ContainSubstring(tc.problem), ContainSubstring("delete the Secret"))))
			Expect(err).NotTo(MatchError(ContainSubstring("hunter2")), "an error goes to a log, and a key does not")
			Expect(store.Key()).To(Equal(key(1)))

			server := newAPIServer(secret)
			Expect(newMaker(server).ensure(t.Context())).To(Succeed())
			Expect(server.writes).To(BeEmpty(), "it is not written over")
		})
	}
}

func TestAStoreWithoutAKeyAcceptsNothing(t *testing.T) {
	NewWithT(t).Expect((&Store{}).Key()).To(BeNil())
}

// Registrations are made anew when there is another key, and not each time that the Secret changes.
func TestAStoreTellsOfAnotherKey(t *testing.T) {
	Expect := NewWithT(t).Expect
	store := &Store{}
	changes := store.Subscribe()
	for _, step := range []struct {
		key   []byte
		tells bool
	}{
		{key: key(1), tells: true}, {key: key(1)}, {key: []byte("broken")}, {key: key(1)}, {key: key(2), tells: true},
	} {
		_ = store.Set(secretWith(step.key)) // one of them is broken
		if step.tells {
			Expect(changes).To(Receive(), "%v", step.key)
		}
		Expect(changes).NotTo(Receive(), "%v", step.key)
	}
}

// Informers share their objects: what becomes of one later must not change the key.
func TestAStoreKeepsItsOwnCopy(t *testing.T) {
	secret := secretWith(key(1))
	store := &Store{}
	NewWithT(t).Expect(store.Set(secret)).To(Succeed())
	secret.Data[keyData][0] = 99
	NewWithT(t).Expect(store.Key()).To(Equal(key(1)))
}

func newMaker(server *apiServer) Maker { return Maker{Client: server, Secret: secretKey} }

func stored(t *testing.T, server *apiServer) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	NewWithT(t).Expect(server.Get(t.Context(), secretKey, secret)).To(Succeed())
	return secret
}

func TestAKeyIsMadeOnce(t *testing.T) {
	Expect := NewWithT(t).Expect
	seen := map[string]bool{}
	for range 100 {
		server := newAPIServer()
		Expect(newMaker(server).ensure(t.Context())).To(Succeed())
		made := stored(t, server)
		Expect(newMaker(server).ensure(t.Context())).To(Succeed(), "the next leader")
		Expect(stored(t, server)).To(Equal(made))
		Expect(server.writes).To(Equal([]string{"create"}))
		Expect((&Store{}).Set(made)).To(Succeed())
		seen[string(made.Data[keyData])] = true
	}
	Expect(seen).To(HaveLen(100), "keys are random")
}

// Of two leaders, one wins; the other one's key was never in force.
func TestTwoMakersDoNotUndoEachOther(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := newAPIServer()
	var winner *corev1.Secret
	server.before["create"] = func() {
		Expect(newMaker(server).ensure(t.Context())).To(Succeed())
		winner = stored(t, server)
	}
	Expect(newMaker(server).ensure(t.Context())).To(Succeed())
	Expect(winner).NotTo(BeNil())
	Expect(stored(t, server)).To(Equal(winner))
}

func TestAKeyThatCannotBeMadeSaysSo(t *testing.T) {
	for verb, problem := range map[string]string{"get": "getting", "create": "creating"} {
		server := newAPIServer()
		server.fail[verb] = errors.New("broken")
		NewWithT(t).Expect(newMaker(server).ensure(t.Context())).To(MatchError(problem + " the Secret of the key: broken"))
	}
}

// A deleted Secret is how a path or a key that has become known is got rid of: the leader makes another key, and the workload
// cluster is told its new path. As a runnable, it goes on after errors, and ends with its context.
func TestADeletedSecretMakesEveryPathInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		registrar, management := newRegistrar(t)
		management.fail["create"] = errors.New("broken")
		maker, workload := newMaker(management), newAPIServer()
		Expect(maker.NeedLeaderElection()).To(BeTrue(), "only one is needed")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- maker.Start(ctx) }()
		told := func() string {
			t.Helper()
			<-time.After(look + time.Second)
			synctest.Wait()
			Expect(registrar.Keys.Set(stored(t, management))).To(Succeed())
			Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
			return leadsTo(workload.registered(t))[len(base):]
		}
		accepts := func(path string) bool {
			cluster, genuine := Verify(registrar.Keys.Key(), path, is(prod))
			return genuine && cluster == prod.NamespacedName
		}
		synctest.Wait()
		Expect(management.mend("create")).To(Equal([]string{"create"}))
		first := told()
		Expect(told()).To(Equal(first))
		Expect(accepts(first)).To(BeTrue())
		Expect(workload.writes).To(Equal([]string{"create"}))

		Expect(management.Delete(t.Context(), stored(t, management))).To(Succeed())
		second := told()
		Expect(accepts(second)).To(BeTrue())
		Expect(accepts(first)).To(BeFalse())
		Expect(workload.writes).To(Equal([]string{"create", "update"}))
		Expect(registrar.Remove(t.Context(), workload, prod)).Error().To(Succeed())
		Expect(workload.registered(t)).To(BeNil())
		cancel()
		Expect(<-ended).To(Succeed())
	})
}
