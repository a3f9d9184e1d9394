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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/heirloom-dev/heirloom/pkg/rotation"
)

var _ interface {
	manager.Runnable
	manager.LeaderElectionRunnable
} = &Rotator{}

var secretKey = types.NamespacedName{Namespace: "heirloom-system", Name: "keys"}

// clock is what time it is in a test.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newRotator(server *apiServer) (*Rotator, *clock) {
	c := &clock{now: start}
	return &Rotator{
		Shared: rotation.Shared{Live: server, Writer: server, Secret: secretKey, Now: c.Now}, Period: 720 * time.Hour, Grace: Grace,
	}, c
}

func stored(t *testing.T, server *apiServer) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	NewWithT(t).Expect(server.Get(t.Context(), secretKey, secret)).To(Succeed())
	return secret
}

func TestTheKeysOfAWholeRotation(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := newAPIServer()
	rotator, clock := newRotator(server)
	Expect(rotator.NeedLeaderElection()).To(BeTrue(), "one at a time")
	rotate := func(wait, again time.Duration) map[string][]byte {
		t.Helper()
		clock.now = clock.now.Add(wait)
		Expect(rotator.Rotate(t.Context())).To(Equal(again))
		return stored(t, server).Data
	}

	first := rotate(0, 720*time.Hour)
	Expect(first).To(HaveLen(1))
	Expect(first["current"]).To(HaveLen(KeySize))
	Expect(stored(t, server).Type).To(Equal(corev1.SecretTypeOpaque))
	Expect(stored(t, server).Labels).To(HaveKeyWithValue("app.kubernetes.io/managed-by", "heirloom"))
	Expect(rotate(time.Hour, 719*time.Hour)).To(Equal(first))

	second := rotate(719*time.Hour, Grace)
	Expect(second).To(HaveLen(2))
	Expect(second["current"]).To(Equal(first["current"]))
	Expect(second["next"]).To(And(HaveLen(KeySize), Not(Equal(first["current"]))))
	Expect(rotate(time.Minute, Grace-time.Minute)).To(Equal(second))

	third := rotate(Grace-time.Minute, 720*time.Hour)
	Expect(third).To(Equal(map[string][]byte{"current": second["next"], "previous": first["current"]}))

	fourth := rotate(720*time.Hour, Grace)
	Expect(fourth).To(And(HaveLen(2), HaveKeyWithValue("current", third["current"]), HaveKey("next")))
	Expect(server.writes).To(Equal([]string{"create", "update", "update", "update"}))
}

func TestADeletedSecretIsMadeAnew(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := newAPIServer()
	rotator, _ := newRotator(server)
	_, err := rotator.Rotate(t.Context())
	Expect(err).NotTo(HaveOccurred())
	first := stored(t, server)
	Expect(server.Delete(t.Context(), first)).To(Succeed())
	_, err = rotator.Rotate(t.Context())
	Expect(err).NotTo(HaveOccurred())
	Expect(stored(t, server).Data["current"]).To(And(HaveLen(KeySize), Not(Equal(first.Data["current"]))), "that is how a stolen key is got rid of")
}

// Of two leaders, one wins; the other one's key was never in force.
func TestTwoRotatorsDoNotUndoEachOther(t *testing.T) {
	for _, verb := range []string{"create", "update"} {
		t.Run(verb, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			server := newAPIServer()
			rotator, clock := newRotator(server)
			if verb == "update" {
				_, err := rotator.Rotate(t.Context())
				Expect(err).NotTo(HaveOccurred())
				clock.now = clock.now.Add(rotator.Period)
			}
			var winner map[string][]byte
			server.before[verb] = func() {
				_, err := rotator.Rotate(t.Context())
				Expect(err).NotTo(HaveOccurred())
				winner = stored(t, server).Data
			}
			_, err := rotator.Rotate(t.Context())
			Expect(err).To(Or(MatchError(apierrors.IsConflict, "IsConflict"), MatchError(apierrors.IsAlreadyExists, "IsAlreadyExists")))
			Expect(winner).NotTo(BeEmpty())
			Expect(stored(t, server).Data).To(Equal(winner))
		})
	}
}

func TestBrokenKeysAreNotWrittenOver(t *testing.T) {
	for _, tc := range []struct {
		name    string
		data    map[string][]byte
		problem string
	}{
		{name: "a key that is too short", data: map[string][]byte{"current": []byte("short")}, problem: `its "current" has 5 bytes instead of 32`},
		{name: "nothing", problem: `it has no "current"`},
		{name: "something else", data: map[string][]byte{"tls.crt": []byte("x")}, problem: `it has no "current"`},
		{name: "an empty key", data: map[string][]byte{"current": {}}, problem: `its "current" has 0 bytes instead of 32`},
		{name: "a next key without a current one", data: map[string][]byte{"next": key(2)}, problem: `it has no "current"`},
		{name: "a next key that is too long", data: map[string][]byte{"current": key(1), "next": append(key(2), 2)}, problem: `its "next" has 33 bytes instead of 32`},
		{name: "a broken previous key", data: map[string][]byte{"current": key(1), "previous": []byte("\n")}, problem: `its "previous" has 1 bytes instead of 32`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := newAPIServer(secretWith(tc.data))
			rotator, clock := newRotator(server)
			clock.now = clock.now.Add(10 * rotator.Period)
			_, err := rotator.Rotate(t.Context())
			NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring(tc.problem), ContainSubstring("once it is deleted, new ones are made"))))
			NewWithT(t).Expect(server.writes).To(BeEmpty())
		})
	}
}

func TestARotationThatFailsSaysSo(t *testing.T) {
	for verb, problem := range map[string]string{"get": "getting", "create": "creating", "update": "updating"} {
		server := newAPIServer()
		if verb == "update" {
			server = newAPIServer(secretWith(map[string][]byte{"current": key(1)}))
		}
		server.fail[verb] = errors.New("broken")
		rotator, _ := newRotator(server)
		_, err := rotator.Rotate(t.Context())
		NewWithT(t).Expect(err).To(MatchError(problem + " the Secret of the keys: broken"))
	}
}

// As a runnable it goes on after errors, takes each step when it is due, and ends with its context.
func TestARotatorRotatesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		server := newAPIServer()
		server.fail["create"] = errors.New("broken")
		rotator, _ := newRotator(server)
		rotator.Period = ShortestPeriod
		begin, looks := time.Now(), 0
		rotator.Now = func() time.Time {
			looks++
			if time.Since(begin) > 0 {
				delete(server.fail, "create")
			}
			return time.Now()
		}
		run := func(within time.Duration) []string {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			Expect(rotator.Start(ctx)).To(Succeed())
			return server.writes
		}
		Expect(run(2*rotation.Retry)).To(Equal([]string{"create", "create"}), "it fails once, and is soon tried again")
		Expect(run(ShortestPeriod-2*rotation.Look)).To(HaveLen(2), "nothing is due")
		Expect(looks).To(BeNumerically(">", 40), "but somebody may delete the Secret")
		Expect(run(Grace)).To(Equal([]string{"create", "create", "update"}))
		Expect(run(Grace)).To(Equal([]string{"create", "create", "update", "update"}))
	})
}
