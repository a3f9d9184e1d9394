// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lose deletes the Secret.
func (s *apiServer) lose(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name}}
	NewWithT(t).Expect(s.Delete(t.Context(), secret)).To(Succeed())
}

// A deleted Secret is how a stolen key is got rid of, also in the middle of a rotation: another CA is made, served and
// published, and nobody trusts the one before any more.
func TestADeletedSecretIsMadeAnew(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps []time.Duration
		cas   int
	}{
		{name: "with one CA", steps: []time.Duration{0}, cas: 1},
		{name: "with a next CA", steps: []time.Duration{0, 9 * time.Hour}, cas: 2},
		{name: "with a previous CA", steps: []time.Duration{0, 9 * time.Hour, usual.Grace}, cas: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			server, c := newAPIServer(installed()...), &clock{now: noon}
			k, told := newKeeper(server, c), 0
			k.Published = func() { told++ }
			for _, step := range tc.steps {
				c.now = c.now.Add(step)
				k.settle(t)
			}
			before := server.stored(t)
			Expect(before.cas()).To(HaveLen(tc.cas))
			server.lose(t)
			told = 0
			k.settle(t)

			after := server.stored(t)
			Expect(after.cas()).To(HaveLen(1))
			Expect(k.serving.Load().Leaf.Equal(after.leaf.Leaf)).To(BeTrue())
			bundle, err := after.bundle()
			Expect(err).NotTo(HaveOccurred())
			Expect(server.bundles(t)).To(HaveEach(string(bundle)))
			for _, ca := range before.cas() {
				Expect(ca.Equal(after.current.Leaf)).To(BeFalse())
				Expect(after.leaf.Leaf.CheckSignatureFrom(ca)).NotTo(Succeed())
			}
			Expect(told).To(Equal(1), "the one that hands the bundle on is told")
		})
	}
}

// What was made is served at once: an API server may have been told of it by another replica before the next look.
func TestWhatWasMadeIsServedAtOnce(t *testing.T) {
	Expect := NewWithT(t).Expect
	server, c := newAPIServer(installed()...), &clock{now: noon}
	k := newKeeper(server, c)
	for range 2 {
		_, err := k.Keep(t.Context())
		Expect(err).NotTo(HaveOccurred())
		Expect(k.serving.Load().Leaf.Equal(server.stored(t).leaf.Leaf)).To(BeTrue())
		k.settle(t)
		c.now = c.now.Add(90 * time.Minute)
	}
}

// Between a read and the write that rests on it, somebody may delete the Secret. Nothing of it comes back.
func TestASecretThatIsDeletedMeanwhileStaysDeleted(t *testing.T) {
	Expect := NewWithT(t).Expect
	server, c := newAPIServer(installed()...), &clock{now: noon}
	k := newKeeper(server, c)
	k.settle(t)
	before := server.stored(t)
	c.now = c.now.Add(9 * time.Hour)
	server.before["update"] = func() { server.lose(t) }
	_, err := k.Keep(t.Context())
	Expect(err).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	k.settle(t)
	Expect(server.stored(t).current.Leaf.Equal(before.current.Leaf)).To(BeFalse())
	Expect(k.Source().check(c.now)).To(Succeed())
}

// Where nothing can be written, what was loaded is served for as long as it is valid, and each look says what is wrong.
func TestWithoutWritesTheCertificateIsServedToItsEnd(t *testing.T) {
	Expect := NewWithT(t).Expect
	server, c := newAPIServer(installed()...), &clock{now: noon}
	k := newKeeper(server, c)
	k.settle(t)
	server.fail["update"] = errors.New("broken")
	for end := noon.Add(usual.Validity); !c.now.After(end); c.now = c.now.Add(usual.Grace) {
		_, err := k.Keep(t.Context())
		if c.now.After(end.Add(-usual.Validity / 3)) {
			Expect(err).To(MatchError("updating the Secret of the serving certificate: broken"))
		} else {
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(k.Source().check(c.now)).To(Succeed())
	}
	_, err := k.Keep(t.Context())
	Expect(err).To(HaveOccurred())
	Expect(k.Source().check(c.now)).To(MatchError(ContainSubstring("is valid from 2026-11-21 11:00:00 +0000 UTC to 2026-11-21 14:00:00 +0000 UTC only")), "it is not ready any more")
	delete(server.fail, "update")
	k.settle(t)
	Expect(k.Source().check(c.now)).To(Succeed())
}

// A configuration that goes while it is published in is no reason to stop: it is not there the next time.
func TestAConfigurationThatIsDeletedMeanwhile(t *testing.T) {
	Expect := NewWithT(t).Expect
	objects := installed()
	server, c := newAPIServer(objects...), &clock{now: noon}
	k := newKeeper(server, c)
	_, err := k.Keep(t.Context())
	Expect(err).NotTo(HaveOccurred())
	server.before["patch"] = func() { Expect(server.Delete(t.Context(), objects[0])).To(Succeed()) }
	_, err = k.Keep(t.Context())
	Expect(err).To(MatchError(And(ContainSubstring("publishing the CA bundle in the webhook configuration heirloom"), ContainSubstring("not found"))))
	Expect(k.Source().check(c.now)).To(Succeed())
	k.settle(t)
	Expect(server.bundles(t)).To(And(HaveLen(1), HaveEach(Not(BeEmpty()))))
}

// An hour is what a clock may be behind. A replica with such a clock leaves alone what others have just made.
func TestAReplicaWhoseClockIsBehindChangesNothing(t *testing.T) {
	for _, behind := range []time.Duration{time.Minute, skew} {
		server := newAPIServer(installed()...)
		newKeeper(server, &clock{now: noon}).settle(t)
		before, writes := server.stored(t), len(server.writes)
		late := newKeeper(server, &clock{now: noon.Add(-behind)})
		late.settle(t)
		NewWithT(t).Expect(server.stored(t)).To(Equal(before))
		NewWithT(t).Expect(server.writes).To(HaveLen(writes))
		NewWithT(t).Expect(late.Source().check(noon.Add(-behind))).To(Succeed())
	}
}

// The one that hands the bundle on is told of it when the program starts, and of each other one, but not of each renewal.
func TestTheOneThatHandsTheBundleOnIsToldOfEachOne(t *testing.T) {
	Expect := NewWithT(t).Expect
	server, c := newAPIServer(installed()...), &clock{now: noon}
	newKeeper(server, c).settle(t)
	k, told := newKeeper(server, c), 0
	k.Published = func() { told++ }
	for _, step := range []struct {
		after time.Duration
		told  int
	}{{0, 1}, {90 * time.Minute, 1}, {8 * time.Hour, 2}, {usual.Grace, 3}, {usual.Grace, 4}, {time.Minute, 4}} {
		c.now = c.now.Add(step.after)
		k.settle(t)
		Expect(told).To(Equal(step.told), "at %s", c.now)
	}
}
