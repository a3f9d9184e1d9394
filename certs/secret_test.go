// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// full is a state in which there is everything.
func full(t *testing.T) state {
	t.Helper()
	st := begun(t, noon)
	with(nil)(&st)
	replaced(noon)(&st)
	return st
}

func TestTheSecretHoldsTheState(t *testing.T) {
	Expect := NewWithT(t).Expect
	before := full(t)
	secret := secretOf(t, before)
	Expect(secret.Data).To(HaveLen(8))
	after, err := stateIn(secret)
	Expect(err).NotTo(HaveOccurred())
	Expect(after.cas()).To(Equal(before.cas()))
	Expect(after.current.PrivateKey).To(Equal(before.current.PrivateKey))
	Expect(after.next.PrivateKey).To(Equal(before.next.PrivateKey))
	Expect(after.leaf.PrivateKey).To(Equal(before.leaf.PrivateKey))
	Expect(after.leaf.Leaf.Equal(before.leaf.Leaf)).To(BeTrue())
	Expect(after.currentSince).To(Equal(before.currentSince))
	Expect(after.nextPublished).To(Equal(before.nextPublished))

	bundle, err := before.bundle()
	Expect(err).NotTo(HaveOccurred())
	Expect(secret.Data[bundleData]).To(Equal(bundle))

	secret.Data["another's"], secret.Annotations["another's"] = []byte("x"), "y"
	before.next, before.previous, before.nextPublished = nil, nil, time.Time{}
	Expect(before.put(secret)).To(Succeed())
	Expect(secret.Data).To(And(HaveLen(6), HaveKey("another's"), HaveKey(currentKeyData)))
	Expect(secret.Annotations).To(HaveLen(2))
}

func TestBrokenSecrets(t *testing.T) {
	other := secretOf(t, begun(t, noon))
	for _, tc := range []struct {
		name    string
		change  map[string][]byte
		problem string
		// leafless: it is usable, but for its serving certificate.
		leafless bool
	}{
		{name: "no current CA", change: map[string][]byte{currentData: nil}, problem: `it has no "current-ca.crt"`},
		{name: "a current CA without a key", change: map[string][]byte{currentKeyData: nil}, problem: `its "current-ca.crt" and "current-ca.key"`},
		{name: "a current CA with another's key", change: map[string][]byte{currentKeyData: other.Data[currentKeyData]}, problem: "private key does not match public key"},
		{name: "a CA that is none", change: map[string][]byte{currentData: other.Data[corev1.TLSCertKey]}, problem: "it is not the one certificate of a CA"},
		{name: "a next CA that is none", change: map[string][]byte{nextData: []byte("x")}, problem: `its "next-ca.crt" and "next-ca.key"`},
		{name: "a previous CA that is none", change: map[string][]byte{previousData: []byte("x")}, problem: `its "previous-ca.crt"`},
		{name: "no serving certificate", change: map[string][]byte{corev1.TLSCertKey: nil}, leafless: true},
		{name: "a serving certificate with another's key", change: map[string][]byte{corev1.TLSPrivateKeyKey: other.Data[corev1.TLSPrivateKeyKey]}, leafless: true},
		{name: "a serving certificate by another CA", change: map[string][]byte{
			corev1.TLSCertKey: other.Data[corev1.TLSCertKey], corev1.TLSPrivateKeyKey: other.Data[corev1.TLSPrivateKeyKey],
		}, leafless: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			secret := secretOf(t, full(t))
			for name, content := range tc.change {
				secret.Data[name] = content
				if content == nil {
					delete(secret.Data, name)
				}
			}
			st, err := stateIn(secret)
			if tc.leafless {
				Expect(err).NotTo(HaveOccurred())
				Expect(st.leaf).To(BeNil())
				return
			}
			Expect(err).To(MatchError(And(
				ContainSubstring("heirloom-system/heirloom-webhook-authority"), ContainSubstring(tc.problem), Not(ContainSubstring("KEY")),
			)))
		})
	}
}

// Whatever somebody has put into the Secret, it is read without a panic, and what is used fits together.
func FuzzSecret(f *testing.F) {
	f.Add("current-ca.crt", []byte("x"), "2026-11-21T12:00:00Z")
	f.Add("tls.crt", []byte("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"), "")
	f.Fuzz(func(t *testing.T, name string, content []byte, since string) {
		for _, secret := range []*corev1.Secret{secretOf(t, full(t)), {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}, Data: map[string][]byte{}}} {
			secret.Data[name] = content
			secret.Annotations[currentSinceAnnotation] = since
			st, err := stateIn(secret)
			if err != nil {
				continue
			}
			st, _, err = usual.advance(st, noon.Add(time.Minute))
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(st.leaf.Leaf.CheckSignatureFrom(st.current.Leaf)).To(Succeed())
		}
	})
}
