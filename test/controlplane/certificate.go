// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/util/pki"
)

// ServingCertificate writes tls.crt, tls.key and ca.crt into a directory, like a mounted Secret of cert-manager, with a certificate for
// these DNS names and IP addresses. cert-manager's own code makes the certificates. Each call makes a new certificate authority and
// returns its certificate.
func ServingCertificate(dir string, hosts ...string) (caPEM []byte, err error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	return ca.pem, writeServing(dir, ca, hosts...)
}

func newAuthority() (*keyPair, error) {
	ca, err := issue(cmapi.CertificateSpec{CommonName: "heirloom-test-ca", IsCA: true, Usages: []cmapi.KeyUsage{cmapi.UsageCertSign}}, nil)
	if err != nil {
		return nil, fmt.Errorf("making a certificate authority: %w", err)
	}
	return ca, nil
}

// writeServing writes tls.crt, tls.key and ca.crt.
func writeServing(dir string, ca *keyPair, hosts ...string) error {
	leaf, err := issue(servingSpec(hosts), ca)
	if err != nil {
		return fmt.Errorf("making a serving certificate: %w", err)
	}
	key, err := pki.EncodePKCS8PrivateKey(leaf.key)
	if err != nil {
		return fmt.Errorf("encoding the key of a serving certificate: %w", err)
	}
	for name, content := range map[string][]byte{"tls.crt": leaf.pem, "tls.key": key, "ca.crt": ca.pem} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return fmt.Errorf("writing a serving certificate: %w", err)
		}
	}
	return nil
}

func servingSpec(hosts []string) cmapi.CertificateSpec {
	spec := cmapi.CertificateSpec{
		Usages: []cmapi.KeyUsage{cmapi.UsageDigitalSignature, cmapi.UsageKeyEncipherment, cmapi.UsageServerAuth},
	}
	for _, host := range hosts {
		if net.ParseIP(host) != nil {
			spec.IPAddresses = append(spec.IPAddresses, host)
		} else {
			spec.DNSNames = append(spec.DNSNames, host)
		}
	}
	return spec
}

// keyPair is a certificate with its private key.
type keyPair struct {
	certificate *x509.Certificate
	pem         []byte
	key         crypto.Signer
}

// issue makes a certificate that the issuer signs. It is self-signed if the issuer is nil.
func issue(spec cmapi.CertificateSpec, issuer *keyPair) (*keyPair, error) {
	spec.PrivateKey = &cmapi.CertificatePrivateKey{Algorithm: cmapi.ECDSAKeyAlgorithm}
	certificate := &cmapi.Certificate{Spec: spec}
	key, err := pki.GeneratePrivateKeyForCertificate(certificate)
	if err != nil {
		return nil, err
	}
	template, err := pki.CertificateTemplateFromCertificate(certificate)
	if err != nil {
		return nil, err
	}
	if issuer == nil {
		issuer = &keyPair{certificate: template, key: key}
	}
	pem, signed, err := pki.SignCertificate(template, issuer.certificate, key.Public(), issuer.key)
	if err != nil {
		return nil, err
	}
	return &keyPair{certificate: signed, pem: pem, key: key}, nil
}
