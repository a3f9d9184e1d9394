// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// skew is how far a clock may be behind ours and still find valid what has just been made.
const skew = time.Hour

// authority is a CA.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// newAuthority makes a CA that is valid for that long from now on.
func newAuthority(now time.Time, validity time.Duration) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of a CA: %w", err)
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{Organization: []string{"heirloom.dev"}, CommonName: "heirloom-webhook-ca"},
		NotBefore: now.Add(-skew), NotAfter: now.Add(validity),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	a := &authority{certificate: template, key: key}
	a.certificate, err = a.sign(template, key.Public())
	if err != nil {
		return nil, fmt.Errorf("making a CA: %w", err)
	}
	return a, nil
}

// issue makes a serving certificate for DNS names and IP addresses. It never outlives its CA.
func (a *authority) issue(hosts []string, now time.Time, validity time.Duration) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of a serving certificate: %w", err)
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{Organization: []string{"heirloom.dev"}, CommonName: "heirloom-webhook"},
		NotBefore: now.Add(-skew), NotAfter: now.Add(validity),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if template.NotAfter.After(a.certificate.NotAfter) {
		template.NotAfter = a.certificate.NotAfter
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	certificate, err := a.sign(template, key.Public())
	if err != nil {
		return nil, fmt.Errorf("making a serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key, Leaf: certificate}, nil
}

func (a *authority) sign(template *x509.Certificate, public crypto.PublicKey) (*x509.Certificate, error) {
	raw, err := x509.CreateCertificate(rand.Reader, template, a.certificate, public, a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(raw)
}

func validAt(certificate *x509.Certificate, now time.Time) bool {
	return !now.Before(certificate.NotBefore) && !now.After(certificate.NotAfter)
}

// hostsOf returns the DNS names and IP addresses that a certificate is for.
func hostsOf(certificate *x509.Certificate) sets.Set[string] {
	hosts := sets.New(certificate.DNSNames...)
	for _, ip := range certificate.IPAddresses {
		hosts.Insert(ip.String())
	}
	return hosts
}
