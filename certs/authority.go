// SPDX-License-Identifier: Apache-2.0

package certs

import (
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

// skew is how far a clock may be behind ours and still accept a new certificate.
const skew = time.Hour

// newAuthority makes a CA that is valid for that long from now on.
func newAuthority(now time.Time, validity time.Duration) (*tls.Certificate, error) {
	return issue(&x509.Certificate{
		Subject: pkix.Name{Organization: []string{"heirloom.dev"}, CommonName: "heirloom-webhook-ca"},
		IsCA:    true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}, nil, now, validity)
}

// newServing makes a serving certificate for DNS names and IP addresses.
func newServing(ca *tls.Certificate, hosts []string, now time.Time, validity time.Duration) (*tls.Certificate, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{Organization: []string{"heirloom.dev"}, CommonName: "heirloom-webhook"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return issue(template, ca, now, validity)
}

// issue makes a certificate with a new key, signed by that CA or, without one, by itself. It expires no later than its CA.
func issue(template *x509.Certificate, ca *tls.Certificate, now time.Time, validity time.Duration) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of %s: %w", template.Subject.CommonName, err)
	}
	template.NotBefore, template.NotAfter, template.BasicConstraintsValid = now.Add(-skew), now.Add(validity), true
	if ca == nil {
		ca = &tls.Certificate{Leaf: template, PrivateKey: key}
	} else if template.NotAfter.After(ca.Leaf.NotAfter) {
		template.NotAfter = ca.Leaf.NotAfter
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of %s: %w", template.Subject.CommonName, err)
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of %s: %w", template.Subject.CommonName, err)
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}, nil
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
