// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// create writes a certificate that is valid from that time on, and its key.
func create(t *testing.T, dir string, from time.Time, validity time.Duration) {
	t.Helper()
	Expect := NewWithT(t).Expect
	ca, err := newAuthority(from, 10*validity)
	Expect(err).NotTo(HaveOccurred())
	leaf, err := newServing(ca, []string{"localhost"}, from, validity)
	Expect(err).NotTo(HaveOccurred())
	certificate, err := cert.EncodeCertificates(leaf.Leaf)
	Expect(err).NotTo(HaveOccurred())
	key, err := keyutil.MarshalPrivateKeyToPEM(leaf.PrivateKey)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(dir, CertName), certificate, 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(dir, KeyName), key, 0o600)).To(Succeed())
}

func TestACertificateFromFiles(t *testing.T) {
	Expect := NewWithT(t).Expect
	dir := t.TempDir()
	_, _, err := FromFiles(dir)
	Expect(err).To(MatchError(ContainSubstring("loading the serving certificate: open ")))

	create(t, dir, noon, time.Hour)
	source, watcher, err := FromFiles(dir)
	Expect(err).NotTo(HaveOccurred())
	until, loaded := source.NotAfter()
	Expect(loaded).To(BeTrue())
	Expect(until).To(Equal(noon.Add(time.Hour)))
	for at, problem := range map[time.Duration]string{
		0: "", -skew: "", time.Hour: "",
		-skew - time.Second:     "valid from 2026-11-21 11:00:00 +0000 UTC to 2026-11-21 13:00:00 +0000 UTC only",
		time.Hour + time.Second: "valid from 2026-11-21 11:00:00 +0000 UTC",
	} {
		err := source.check(noon.Add(at))
		if problem == "" {
			Expect(err).NotTo(HaveOccurred())
		} else {
			Expect(err).To(MatchError(ContainSubstring(problem)))
		}
	}

	// It is what is served that is judged: files that cannot be loaded change nothing, others are loaded.
	Expect(os.WriteFile(filepath.Join(dir, KeyName), []byte("broken"), 0o600)).To(Succeed())
	Expect(watcher.ReadCertificate()).NotTo(Succeed())
	Expect(source.check(noon)).To(Succeed())
	create(t, dir, time.Now(), time.Hour)
	Expect(watcher.ReadCertificate()).To(Succeed())
	Expect(source.Check(nil)).To(Succeed())
}
