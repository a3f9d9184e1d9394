// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/heirloom-dev/heirloom/certs"
	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// issuer is a CA of a test.
type issuer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "ca"}, key)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return issuer{t, ca, key}
}

func (i issuer) issue(name string, usage x509.ExtKeyUsage) tls.Certificate {
	i.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		NotBefore: i.cert.NotBefore, NotAfter: i.cert.NotAfter,
	}, i.cert, i.key.Public(), i.key)
	NewWithT(i.t).Expect(err).NotTo(HaveOccurred())
	leaf, err := x509.ParseCertificate(der)
	NewWithT(i.t).Expect(err).NotTo(HaveOccurred())
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: i.key, Leaf: leaf}
}

func (i issuer) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})
}

// valid returns a source with a valid certificate.
func valid(t *testing.T) certs.Source {
	t.Helper()
	certificate := newIssuer(t).issue("server", x509.ExtKeyUsageServerAuth)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }
}

func TestACertificateFromFilesMustBeThere(t *testing.T) {
	c := &config.Config{}
	c.WebhookCertDir = t.TempDir()
	_, err := addCertificate(t.Context(), nil, c)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("loading the serving certificate")))
}

// With --webhook-client-ca-file, the server answers only clients with a certificate of a CA in the current file.
func TestOnlyClientsWithACertificateAreAnswered(t *testing.T) {
	Expect, Eventually := NewWithT(t).Expect, NewWithT(t).Eventually
	theirs, others := newIssuer(t), newIssuer(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	Expect(os.WriteFile(file, theirs.pem(), 0o600)).To(Succeed())
	var url string
	for _, names := range [][]string{nil, {"front", "api-server"}} {
		c := &config.Config{}
		c.WebhookClientCAFile, c.WebhookClientNames = file, names
		var rejected atomic.Int32
		handler, err := onlyClients(t.Context(), c, saysProtocol(), func(why metrics.Rejection) {
			Expect(why).To(Equal(metrics.Unauthenticated))
			rejected.Add(1)
		})
		Expect(err).NotTo(HaveOccurred())
		url = serveClients(t, t.Context(), true, handler)
		status := func(certificates ...tls.Certificate) int {
			status, _ := statusOf(t, url, "", certificates...)
			return status
		}
		Expect(status(theirs.issue("api-server", x509.ExtKeyUsageClientAuth))).To(Equal(http.StatusOK))
		Expect(rejected.Load()).To(BeZero())
		Expect(status()).To(Equal(http.StatusUnauthorized))
		Expect(status(others.issue("api-server", x509.ExtKeyUsageClientAuth))).To(Equal(http.StatusUnauthorized))
		Expect(status(theirs.issue("api-server", x509.ExtKeyUsageServerAuth))).To(Equal(http.StatusUnauthorized))
		Expect(status(theirs.issue("kubelet", x509.ExtKeyUsageClientAuth)) == http.StatusOK).To(Equal(names == nil))
		Expect(rejected.Load()).To(BeNumerically(">=", 3))
	}
	Expect(os.WriteFile(file, others.pem(), 0o600)).To(Succeed())
	Eventually(func() int {
		status, _ := statusOf(t, url, "", others.issue("api-server", x509.ExtKeyUsageClientAuth))
		return status
	}).WithTimeout(2 * time.Minute).Should(Equal(http.StatusOK))
}

// Go parses the certificates that a client sends, and keeps ten times their size for each connection.
func TestCertificatesOfClientsAreLimited(t *testing.T) {
	answered := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strconv.Itoa(len(r.TLS.PeerCertificates)))
	})
	theirs := newIssuer(t)
	chain := func(most int, name string) tls.Certificate {
		certificate := theirs.issue(name, x509.ExtKeyUsageClientAuth)
		for len(certificate.Certificate) < most {
			certificate.Certificate = append(certificate.Certificate, theirs.cert.Raw)
		}
		return certificate
	}
	few, many, large := chain(mostCertificates, "a"), chain(mostCertificates+1, "a"), chain(1, strings.Repeat("a", mostCertificateBytes))
	for name, tc := range map[string]struct {
		asks    bool
		sent    tls.Certificate
		arrive  string
		refused bool
	}{
		"a chain":                    {asks: true, sent: few, arrive: strconv.Itoa(mostCertificates)},
		"too many":                   {asks: true, sent: many, refused: true},
		"too large":                  {asks: true, sent: large, refused: true},
		"a server that does not ask": {sent: many, arrive: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			transport := &http.Transport{TLSClientConfig: &tls.Config{
				InsecureSkipVerify:   true,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tc.sent, nil },
			}}
			defer transport.CloseIdleConnections()
			response, err := (&http.Client{Transport: transport}).Get(serveClients(t, t.Context(), tc.asks, answered))
			if tc.refused {
				Expect(err).To(MatchError(ContainSubstring("bad certificate")))
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(io.ReadAll(response.Body)).To(BeEquivalentTo(tc.arrive))
			Expect(response.Body.Close()).To(Succeed())
		})
	}
}

// Only the server for the management cluster's API servers requests certificates, and only if accepted CAs are configured.
func TestWhoIsAskedForACertificate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	NewWithT(t).Expect(os.WriteFile(file, newIssuer(t).pem(), 0o600)).To(Succeed())
	for _, accepted := range []string{"", file} {
		Expect := NewWithT(t).Expect
		counters, err := metrics.New(prometheus.NewRegistry())
		Expect(err).NotTo(HaveOccurred())
		c, m := &config.Config{}, &onlyAdded{}
		c.WebhookHost, c.WebhookClientCAFile, c.WorkloadWebhookURL = "127.0.0.1", accepted, "https://example.com"
		Expect(addServers(t.Context(), t.Context(), c, valid(t), &Heirloom{
			Manager: m, Webhooks: webhooks.Dependencies{Chain: &owners.Chain{}, Metrics: counters}, metrics: counters,
		})).To(Succeed())
		Expect(m.added).To(HaveLen(2))
		for i, asks := range []bool{accepted != "", false} {
			one := onlyAdded{added: m.added[i : i+1]}
			asked := false
			connection, err := tls.Dial("tcp", one.start(t), &tls.Config{
				InsecureSkipVerify: true,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					asked = true
					return &tls.Certificate{}, nil
				},
			})
			Expect(err).NotTo(HaveOccurred())
			Expect(connection.Close()).To(Succeed())
			Expect(asked).To(Equal(asks), m.added[i].(*manager.Server).Name)
		}
	}
}

func TestClientCAsMustBeThere(t *testing.T) {
	Expect := NewWithT(t).Expect
	everybody := saysProtocol()
	handler, err := onlyClients(t.Context(), &config.Config{}, everybody, nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(reflect.ValueOf(handler).Pointer()).To(Equal(reflect.ValueOf(everybody).Pointer()))
	c := &config.Config{}
	c.WebhookClientCAFile = filepath.Join(t.TempDir(), "none")
	_, err = onlyClients(t.Context(), c, everybody, nil)
	Expect(err).To(MatchError(ContainSubstring("loading the CAs of the webhooks' clients")))
}
