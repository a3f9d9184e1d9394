// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

var _ interface {
	manager.Runnable
	manager.LeaderElectionRunnable
} = &Keeper{}

func TestAKeeperMakesServesAndPublishes(t *testing.T) {
	Expect := NewWithT(t).Expect
	server, c := newAPIServer(installed()...), &clock{now: noon}
	k := newKeeper(server, c)
	told := 0
	k.Published = func() { told++ }
	Expect(k.NeedLeaderElection()).To(BeFalse(), "in a rolling update the leader may know nothing of the Secret")
	_, loaded := k.Source().NotAfter()
	Expect(loaded).To(BeFalse())
	Expect(k.Source().check(noon)).To(MatchError(errNone))

	k.settle(t)
	Expect(server.writes).To(Equal([]string{"create", "patch", "patch"}))
	until, loaded := k.Source().NotAfter()
	Expect(loaded).To(BeTrue())
	Expect(until).To(Equal(noon.Add(usual.Validity)))
	Expect(k.Source().check(noon)).To(Succeed())
	bundle, err := server.stored(t).bundle()
	Expect(err).NotTo(HaveOccurred())
	Expect(server.bundles(t)).To(HaveEach(string(bundle)))
	Expect(server.bundles(t)).To(HaveLen(3))
	Expect(told).To(Equal(1))

	config := &tls.Config{}
	k.Source().Serve(config)
	Expect(config.GetCertificate(nil)).To(Equal(server.stored(t).leaf))

	k.settle(t)
	Expect(server.writes).To(HaveLen(3), "nothing is due")
	Expect(told).To(Equal(1))
}

func TestAReplicaThatComesLaterServesTheSame(t *testing.T) {
	server, c := newAPIServer(installed()...), &clock{now: noon}
	newKeeper(server, c).settle(t)
	other := newKeeper(server, c)
	other.settle(t)
	NewWithT(t).Expect(other.serving.Load().Leaf.Equal(server.stored(t).leaf.Leaf)).To(BeTrue())
	NewWithT(t).Expect(server.writes).To(HaveLen(3))
}

// A new CA is published beside the old one, first; then used; then the old one goes.
func TestTheOrderOfARotation(t *testing.T) {
	Expect := NewWithT(t).Expect
	server, c := newAPIServer(installed()...), &clock{now: noon}
	k := newKeeper(server, c)
	k.settle(t)
	first := server.stored(t)
	pass := func(d time.Duration) state {
		t.Helper()
		c.now = c.now.Add(d)
		k.settle(t)
		return server.stored(t)
	}

	renewed := pass(80*time.Minute + time.Second)
	Expect(renewed.cas()).To(Equal(first.cas()))
	Expect(renewed.leaf.Leaf.Equal(first.leaf.Leaf)).To(BeFalse())
	Expect(k.serving.Load().Leaf.Equal(renewed.leaf.Leaf)).To(BeTrue())

	prepared := pass(7 * time.Hour)
	Expect(prepared.cas()).To(HaveLen(2))
	Expect(prepared.nextPublished).To(Equal(c.now))
	Expect(prepared.current.Leaf.Equal(first.current.Leaf)).To(BeTrue())
	Expect(pass(usual.Grace - time.Second).cas()).To(Equal(prepared.cas()))

	promoted := pass(time.Second)
	Expect(promoted.current.Leaf.Equal(prepared.next.Leaf)).To(BeTrue())
	Expect(promoted.previous.Equal(first.current.Leaf)).To(BeTrue())
	Expect(promoted.leaf.Leaf.CheckSignatureFrom(promoted.current.Leaf)).To(Succeed())
	bundle, err := promoted.bundle()
	Expect(err).NotTo(HaveOccurred())
	Expect(server.bundles(t)).To(HaveEach(string(bundle)))

	retired := pass(usual.Grace)
	Expect(retired.cas()).To(HaveLen(1))
	Expect(retired.leaf.Leaf.Equal(promoted.leaf.Leaf)).To(BeTrue())
	bundle, err = retired.bundle()
	Expect(err).NotTo(HaveOccurred())
	Expect(server.bundles(t)).To(HaveEach(string(bundle)))
}

// What is published by somebody else in between was not known all the time: the grace begins anew.
func TestAWipedBundleIsPublishedAgain(t *testing.T) {
	Expect := NewWithT(t).Expect
	server, c := newAPIServer(installed()...), &clock{now: noon}
	k := newKeeper(server, c)
	k.settle(t)
	c.now = c.now.Add(9 * time.Hour)
	k.settle(t)
	Expect(server.stored(t).nextPublished).To(Equal(c.now))

	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	Expect(server.Get(t.Context(), types.NamespacedName{Name: "heirloom"}, configuration)).To(Succeed())
	configuration.Webhooks[1].ClientConfig.CABundle = nil
	Expect(server.Update(t.Context(), configuration)).To(Succeed())
	c.now = c.now.Add(usual.Grace)
	k.settle(t)
	Expect(server.bundles(t)).To(HaveEach(Not(BeEmpty())))
	Expect(server.stored(t).next).NotTo(BeNil(), "not used yet")
	Expect(server.stored(t).nextPublished).To(Equal(c.now))
}

// Where the bundle cannot be published, the certificate is renewed, but by the CA that API servers know.
func TestWithoutPublishingNoCAIsUsed(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, *apiServer){
		"forbidden": func(_ *testing.T, server *apiServer) { server.fail["patch"] = errors.New("forbidden") },
		"cert-manager's": func(t *testing.T, server *apiServer) {
			configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
			NewWithT(t).Expect(server.Get(t.Context(), types.NamespacedName{Name: "heirloom"}, configuration)).To(Succeed())
			configuration.Annotations = map[string]string{injected: "heirloom-system/heirloom-webhook"}
			NewWithT(t).Expect(server.Update(t.Context(), configuration)).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			server, c := newAPIServer(installed()...), &clock{now: noon}
			k := newKeeper(server, c)
			k.settle(t)
			first := server.stored(t)
			spoil(t, server)
			var err error
			for end := noon.Add(11 * time.Hour); c.now.Before(end); c.now = c.now.Add(usual.Grace) {
				_, err = k.Keep(t.Context())
				Expect(k.Source().check(c.now)).To(Succeed())
			}
			Expect(err).To(MatchError(Or(ContainSubstring("forbidden"), ContainSubstring("remove the annotation"))))
			Expect(server.stored(t).current.Leaf.Equal(first.current.Leaf)).To(BeTrue())
			Expect(server.stored(t).next).NotTo(BeNil())
		})
	}
}

func TestWithoutWebhooksNobodyNeedsToKnow(t *testing.T) {
	server, c := newAPIServer(), &clock{now: noon}
	k := newKeeper(server, c)
	k.settle(t)
	NewWithT(t).Expect(server.writes).To(Equal([]string{"create"}))
}

// An empty Secret may be there before, where Heirloom must not create any.
func TestAnEmptySecretIsFilled(t *testing.T) {
	Expect := NewWithT(t).Expect
	empty := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name, Labels: map[string]string{"a": "b"}}, Type: corev1.SecretTypeOpaque}
	server, c := newAPIServer(empty), &clock{now: noon}
	newKeeper(server, c).settle(t)
	Expect(server.writes).To(Equal([]string{"update"}))
	secret := &corev1.Secret{}
	Expect(server.Get(t.Context(), secretKey, secret)).To(Succeed())
	Expect(secret.Labels).To(Equal(map[string]string{"a": "b"}))
}

// Of two replicas, one wins; what the other one has made was never served.
func TestTwoReplicasDoNotUndoEachOther(t *testing.T) {
	for _, verb := range []string{"create", "update", "patch"} {
		t.Run(verb, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			server, c := newAPIServer(installed()...), &clock{now: noon}
			one, other := newKeeper(server, c), newKeeper(server, c)
			switch verb {
			case "update":
				one.settle(t)
				c.now = c.now.Add(9 * time.Hour)
			case "patch":
				_, err := one.Keep(t.Context())
				Expect(err).NotTo(HaveOccurred())
			}
			server.before[verb] = func() { other.settle(t) }
			again, err := one.Keep(t.Context())
			Expect(err).NotTo(HaveOccurred())
			Expect(again).To(Equal(soon))
			winner := server.stored(t)
			one.settle(t)
			Expect(server.stored(t)).To(Equal(winner))
			for _, k := range []*Keeper{one, other} {
				Expect(k.serving.Load().Leaf.Equal(winner.leaf.Leaf)).To(BeTrue())
			}
			bundle, err := winner.bundle()
			Expect(err).NotTo(HaveOccurred())
			Expect(server.bundles(t)).To(HaveEach(string(bundle)))
		})
	}
}

func TestABrokenSecretIsNotWrittenOver(t *testing.T) {
	Expect := NewWithT(t).Expect
	server, c := newAPIServer(installed()...), &clock{now: noon}
	k := newKeeper(server, c)
	k.settle(t)
	secret := &corev1.Secret{}
	Expect(server.Get(t.Context(), secretKey, secret)).To(Succeed())
	secret.Data[currentData] = []byte("broken")
	Expect(server.Update(t.Context(), secret)).To(Succeed())
	writes := len(server.writes)
	_, err := k.Keep(t.Context())
	Expect(err).To(MatchError(ContainSubstring("once it is deleted, a new one is made")))
	Expect(server.writes).To(HaveLen(writes))
	Expect(k.Source().check(c.now)).To(Succeed(), "what was loaded before is served")
}

func TestWhatFailsSaysSo(t *testing.T) {
	for verb, problem := range map[string]string{
		"get": "getting the installed webhook configuration: broken", "create": "creating the Secret of the serving certificate: broken",
	} {
		server := newAPIServer(installed()...)
		server.fail[verb] = errors.New("broken")
		_, err := newKeeper(server, &clock{now: noon}).Keep(t.Context())
		NewWithT(t).Expect(err).To(MatchError(problem))
	}
}

func TestAKeeperGoesOnByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		server := newAPIServer(installed()...)
		k := newKeeper(server, nil)
		k.Now = time.Now
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Hour)
		defer cancel()
		Expect(k.Start(ctx)).To(Succeed())
		Expect(k.Source().Check(nil)).To(Succeed())
		Expect(server.writes).To(ContainElements("create", "update"))
		Expect(len(server.writes)).To(BeNumerically("<", 80), "but no more than is due")
	})
}
