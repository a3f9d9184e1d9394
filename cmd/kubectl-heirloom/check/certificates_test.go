// SPDX-License-Identifier: Apache-2.0

package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/util/cert"
)

// made returns a serving certificate, in PEM, that is valid between two times, in days from now, and the CA that has signed it.
func made(t *testing.T, ca, host string, from, to int) (serving, authority []byte) {
	t.Helper()
	Expect := NewWithT(t).Expect
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: ca}, NotBefore: now().AddDate(-1, 0, 0), NotAfter: now().AddDate(9, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: now().AddDate(0, 0, from), NotAfter: now().AddDate(0, 0, to), DNSNames: []string{host},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	pems := [][]byte{}
	for _, template := range []*x509.Certificate{leaf, root} {
		raw, err := x509.CreateCertificate(rand.Reader, template, root, key.Public(), key)
		Expect(err).NotTo(HaveOccurred())
		pems = append(pems, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: raw}))
	}
	return pems[0], pems[1]
}

func TestCertificates(t *testing.T) {
	const refused, page, check = "API servers refuse the serving certificate: x509: ", "HeirloomCertificateExpiring", "certificates"
	signed := func(from, to int, host string) func(*scenery) {
		return func(s *scenery) { s.signed("ca", host, from, to) }
	}
	otherCA := func(s *scenery) {
		_, ca := made(s.t, "other", serverName, -30, 60)
		s.register(ca)
	}
	bundle := func(bundle []byte) func(*scenery) {
		return mutating(func(w *admissionv1.MutatingWebhook) { w.ClientConfig.CABundle = bundle })
	}
	unmounted := func(s *scenery) { s.deployment.Spec.Template.Spec.Volumes = nil }
	own := flags("--webhook-cert-secret=heirloom-system/heirloom-webhook-cert", "--webhook-configuration=heirloom", "--webhook-cert-dns-names="+serverName)
	expect(t, []finding{
		{check, "valid", func(*scenery) {}, OK, []string{"is valid until 2026-07-31, and is signed"}},
		{check, "no caBundle", bundle(nil), Failed, []string{"no readable caBundle", "cainjector", ": machines.heirloom.dev", page}}, // valid bundles come after it
		{check, "no caBundle that is one", bundle([]byte("x")), Failed, []string{"no readable caBundle"}},
		{check, "expired", signed(-90, -1, serverName), Failed, []string{refused + "certificate has expired", page}},
		{check, "by another CA", otherCA, Failed, []string{refused + "certificate signed by unknown authority"}},
		{check, "for another host", signed(-30, 60, "other.svc"), Failed, []string{refused + "certificate is valid for other.svc"}},
		{check, "not renewed in time", signed(-83, 6, serverName), Warning, []string{"until 2026-06-07", "its renewal is overdue", page}},
		{check, "of a short life", signed(-2, 1, serverName), OK, nil},
		{check, "no right to read the Secret", denied("Secret"), Unknown, []string{"no right", "metric"}},
		{check, "no Secret", gone("secret"), Unknown, []string{"not found"}},
		{check, "Heirloom's own", both(own, unmounted), OK, nil},
		{check, "nowhere mounted", unmounted, Unknown, []string{"no Deployment of Heirloom mounts"}},
		{check, "by URL", both(signed(-30, 60, "heirloom.example.com"), byURL), OK, nil},
		{check, "by URL, for another host", byURL, Failed, []string{refused + "certificate is valid for " + serverName}},
		{check, "by URL, of a program elsewhere", both(byURL, gone("deployment")), Unknown, []string{"metric"}},
		{check, "no webhook", gone("mutating", "validating"), Skipped, []string{"could not be checked"}},
		{check, "no rights", denied("ValidatingWebhookConfigurationList"), Unknown, []string{"listing ValidatingWebhookConfigurations"}},
	})
}
