// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

func TestServingCertificate(t *testing.T) {
	Expect := NewWithT(t).Expect
	dir := t.TempDir()
	caPEM, err := controlplane.WriteCertificate(dir, controlplane.CertificateOptions{
		Hosts:    []string{"heirloom.heirloom-system.svc", "127.0.0.1"},
		Validity: 5 * time.Minute,
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(os.ReadFile(filepath.Join(dir, "ca.crt"))).To(Equal(caPEM))
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	Expect(err).NotTo(HaveOccurred())
	Expect(pair.Leaf.NotAfter).To(BeTemporally("~", time.Now().Add(5*time.Minute), time.Minute))

	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(caPEM)).To(BeTrue())
	for _, host := range []string{"heirloom.heirloom-system.svc", "127.0.0.1"} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots})
		Expect(err).NotTo(HaveOccurred(), host)
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: "elsewhere.example", Roots: roots})
	Expect(err).To(HaveOccurred())

	another, err := controlplane.ServingCertificate(t.TempDir(), "localhost")
	Expect(err).NotTo(HaveOccurred())
	Expect(another).NotTo(Equal(caPEM))
}
