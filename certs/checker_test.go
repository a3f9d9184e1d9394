// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name     string
		from, to time.Duration
		spoil    func(dir string) error
		problem  string
	}{
		{name: "a valid certificate is fine", from: -time.Hour, to: time.Hour},
		{name: "the first second of its life is fine", to: time.Hour},
		{name: "the last second of its life is fine", from: -time.Hour},
		{name: "an expired certificate is not", from: -2 * time.Hour, to: -time.Second, problem: "valid from 2026-11-21 10:00:00 +0000 UTC to 2026-11-21 11:59:59 +0000 UTC only"},
		{name: "a certificate of tomorrow is not", from: time.Second, to: time.Hour, problem: "valid from 2026-11-21 12:00:01 +0000 UTC"},
		{name: "a missing certificate is not", to: time.Hour, spoil: remove(CertName), problem: "loading the serving certificate: open "},
		{name: "a missing key is not", to: time.Hour, spoil: remove(KeyName), problem: "loading the serving certificate: open "},
		{name: "an empty certificate is not", to: time.Hour, spoil: write(CertName, ""), problem: "failed to find any PEM data in certificate input"},
		{name: "a key that is none is not", to: time.Hour, spoil: write(KeyName, "secret"), problem: "failed to find any PEM data in key input"},
		{name: "another certificate's key is not", to: time.Hour, spoil: func(dir string) error {
			other, err := os.MkdirTemp(dir, "")
			if err != nil {
				return err
			}
			if err := create(other, 0, time.Hour); err != nil {
				return err
			}
			return os.Rename(filepath.Join(other, KeyName), filepath.Join(dir, KeyName))
		}, problem: "private key does not match public key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			dir := t.TempDir()
			Expect(create(dir, tc.from, tc.to)).To(Succeed())
			if tc.spoil != nil {
				Expect(tc.spoil(dir)).To(Succeed())
			}
			err := check(dir, noon)
			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred())
				return
			}
			Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			Expect(err).NotTo(MatchError(ContainSubstring("secret")), "a key must not be in an error")
		})
	}
}

// The check is made anew each time: a renewed certificate makes the server ready again.
func TestChecker(t *testing.T) {
	Expect := NewWithT(t).Expect
	dir := t.TempDir()
	checker := Checker(dir)
	Expect(checker(nil)).NotTo(Succeed())
	Expect(create(dir, time.Since(noon)-time.Hour, time.Since(noon)+time.Hour)).To(Succeed())
	Expect(checker(nil)).To(Succeed())
	Expect(create(dir, time.Since(noon)-2*time.Hour, time.Since(noon)-time.Hour)).To(Succeed())
	Expect(checker(nil)).NotTo(Succeed())
}

func TestExpiry(t *testing.T) {
	Expect := NewWithT(t).Expect
	dir := t.TempDir()
	_, known := Expiry(dir)
	Expect(known).To(BeFalse())
	Expect(create(dir, 0, time.Hour)).To(Succeed())
	at, known := Expiry(dir)
	Expect(known).To(BeTrue())
	Expect(at).To(BeTemporally("==", noon.Add(time.Hour)))
}

// create writes a certificate that is valid from and to this long after noon, and its key.
func create(dir string, from, to time.Duration) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: noon.Add(from), NotAfter: noon.Add(to)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		CertName: {Type: "CERTIFICATE", Bytes: certificate}, KeyName: {Type: "EC PRIVATE KEY", Bytes: encoded},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func remove(name string) func(string) error {
	return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
}

func write(name, content string) func(string) error {
	return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600) }
}
