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
} = &Keys{}

// An error reports a broken Secret, and Heirloom does not overwrite it. A known key stays in force; a replica that starts now has no key.
func TestABrokenKeyDoesNotReplaceAGoodOne(t *testing.T) {
	for _, tc := range []struct {
		name    string
		data    map[string][]byte
		problem string
	}{
		{name: "no data", problem: `its "key" has 0 bytes instead of 32`},
		{name: "a short key", data: map[string][]byte{"key": []byte("hunter2")}, problem: `its "key" has 7 bytes instead of 32`},
		{name: "a long key", data: map[string][]byte{"key": append(key(2), 0)}, problem: `its "key" has 33 bytes instead of 32`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			server := newAPIServer(secretWith(key(1)))
			keys := keysOf(server)
			Expect(keys.Key(t.Context())).To(Equal(key(1)))
			secret := stored(t, server)
			secret.Data = tc.data
			Expect(server.Update(t.Context(), secret)).To(Succeed())
			server.writes = nil
			err := keys.ensure(t.Context())
			Expect(err).To(MatchError(And(
				ContainSubstring("the Secret heirloom-system/key has no usable key"), ContainSubstring(tc.problem), ContainSubstring("delete the Secret"))))
			Expect(err).NotTo(MatchError(ContainSubstring("hunter2")), "an error is logged, so it must not contain the key")
			Expect(keys.Key(t.Context())).To(Equal(key(1)))
			Expect(keysOf(server).Key(t.Context())).To(BeNil())
			Expect(server.writes).To(BeEmpty(), "the Secret is not overwritten")
			Expect(server.Delete(t.Context(), secret)).To(Succeed())
			Expect(keys.Key(t.Context())).To(Equal(key(1)), "valid until the leader has made another key")
		})
	}
}

// Subscribers hear of another key, and not of each read.
func TestAnotherKeyIsTold(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := newAPIServer()
	keys := keysOf(server)
	changes := keys.Subscribe()
	Expect(keys.Key(t.Context())).To(BeNil())
	Expect(keys.ensure(t.Context())).To(Succeed())
	Expect(changes).NotTo(Receive(), "a cache may not have it yet")
	for _, step := range []struct {
		key   []byte
		tells bool
	}{
		{key: key(1), tells: true}, {key: key(1)}, {key: []byte("broken")}, {key: key(1)}, {key: key(2), tells: true},
	} {
		secret := stored(t, server)
		secret.Data[keyData] = step.key
		Expect(server.Update(t.Context(), secret)).To(Succeed())
		_ = keys.ensure(t.Context()) // a broken Secret returns an error
		if step.tells {
			Expect(changes).To(Receive(), "%v", step.key)
			Expect(keys.Key(t.Context())).To(Equal(step.key))
		}
		Expect(changes).NotTo(Receive(), "%v", step.key)
	}
}

func keysOf(server *apiServer) *Keys { return &Keys{Client: server, Secret: secretKey} }

func stored(t *testing.T, server *apiServer) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	NewWithT(t).Expect(server.Get(t.Context(), secretKey, secret)).To(Succeed())
	return secret
}

func TestMissingKeyIsReported(t *testing.T) {
	for verb, problem := range map[string]string{"get": "getting", "create": "creating"} {
		server := newAPIServer()
		server.fail[verb] = errors.New("broken")
		NewWithT(t).Expect(keysOf(server).ensure(t.Context())).To(MatchError(problem + " the Secret of the key: broken"))
	}
}

// Operators delete the Secret after a leak of a path or a key: the leader makes another key, and the workload cluster gets its new path. As
// a runnable, Keys goes on after errors, and ends with its context.
func TestADeletedSecretMakesEveryPathInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		registrar, management := newRegistrar(t)
		management.fail["create"] = errors.New("broken")
		keys, workload := keysOf(management), newAPIServer()
		registrar.Key = keys.Key
		Expect(keys.NeedLeaderElection()).To(BeTrue(), "a single replica makes the key")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- keys.Start(ctx) }()
		told := func() string {
			t.Helper()
			<-time.After(look + time.Second)
			synctest.Wait()
			Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
			return leadsTo(workload.registered(t))[len(base):]
		}
		accepts := func(path string) bool {
			cluster, genuine := Verify(keys.Key(t.Context()), path, is(prod))
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
