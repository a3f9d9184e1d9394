// SPDX-License-Identifier: Apache-2.0

package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/cert"
)

// authority is a CA.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newCA(t *testing.T, from, to time.Time) authority {
	t.Helper()
	Expect := NewWithT(t).Expect
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Expect(err).NotTo(HaveOccurred())
	certificate, err := x509.ParseCertificate(raw)
	Expect(err).NotTo(HaveOccurred())
	return authority{certificate, key}
}

func (a authority) pem() []byte {
	encoded, _ := cert.EncodeCertificates(a.certificate)
	return encoded
}

// sign returns a serving certificate, in PEM.
func (a authority) sign(t *testing.T, from, to time.Time, host string) []byte {
	t.Helper()
	Expect := NewWithT(t).Expect
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "heirloom"}, NotBefore: from, NotAfter: to, DNSNames: []string{host},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	Expect(err).NotTo(HaveOccurred())
	certificate, err := x509.ParseCertificate(raw)
	Expect(err).NotTo(HaveOccurred())
	encoded, err := cert.EncodeCertificates(certificate)
	Expect(err).NotTo(HaveOccurred())
	return encoded
}
