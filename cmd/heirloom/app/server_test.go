// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

// issuer is a CA.
type issuer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	ca := issuer{t: t, key: key}
	ca.cert = ca.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, key)
	return ca
}

func (i issuer) sign(template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	i.t.Helper()
	Expect := NewWithT(i.t).Expect
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent := i.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), i.key)
	Expect(err).NotTo(HaveOccurred())
	signed, err := x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	return signed
}

func (i issuer) issue(name string, usage x509.ExtKeyUsage) tls.Certificate {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	NewWithT(i.t).Expect(err).NotTo(HaveOccurred())
	cert := i.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func (i issuer) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})
}

// served is a webhook server on a port of its own.
type served struct {
	*server
	ca      issuer
	address string
}

func serve(t *testing.T, change func(*server)) served {
	t.Helper()
	Expect := NewWithT(t).Expect
	ca := newIssuer(t)
	serving := ca.issue("server", x509.ExtKeyUsageServerAuth)
	s := newServer(webhook.Options{TLSOpts: []func(*tls.Config){func(config *tls.Config) {
		config.Certificates = []tls.Certificate{serving}
	}}})
	s.Register("/path", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	change(s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, tls.NewListener(listener, s.tlsConfig())) }()
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Expect(<-ended).To(Succeed())
	})
	return served{server: s, ca: ca, address: "https://localhost:" + port(t, listener)}
}

func port(t *testing.T, listener net.Listener) string {
	t.Helper()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return port
}

// get asks as a client with that certificate, or without one.
func (s served) get(t *testing.T, certificates ...tls.Certificate) (status int, body string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	trusted := x509.NewCertPool()
	trusted.AddCert(s.ca.cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, Certificates: certificates}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.address+"/path", nil)
	Expect(err).NotTo(HaveOccurred())
	response, err := transport.RoundTrip(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(content)
}

func TestServerSpeaksHTTP2(t *testing.T) {
	status, body := serve(t, func(*server) {}).get(t)
	NewWithT(t).Expect(status).To(Equal(http.StatusOK))
	NewWithT(t).Expect(body).To(Equal("HTTP/2.0"))
}

// With --webhook-client-ca-file, a client is answered if it has a certificate by one of the CAs that are in the file now.
func TestOnlyClientsWithACertificateAreAnswered(t *testing.T) {
	Expect, Eventually := NewWithT(t).Expect, NewWithT(t).Eventually
	theirs, others := newIssuer(t), newIssuer(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	Expect(os.WriteFile(file, theirs.pem(), 0o600)).To(Succeed())
	for _, names := range [][]string{nil, {"front", "api-server"}} {
		c := &config.Config{}
		c.WebhookClientCAFile, c.WebhookClientNames = file, names
		accepted, err := newClients(c)
		Expect(err).NotTo(HaveOccurred())
		Expect(accepted.NeedLeaderElection()).To(BeFalse())
		var rejected atomic.Int32
		s := serve(t, func(s *server) {
			accepted.guard(s, func(why metrics.Rejection) {
				Expect(why).To(Equal(metrics.Unauthenticated))
				rejected.Add(1)
			})
		})
		status := func(certificates ...tls.Certificate) int {
			status, _ := s.get(t, certificates...)
			return status
		}
		apiServer := theirs.issue("api-server", x509.ExtKeyUsageClientAuth)
		Expect(status(apiServer)).To(Equal(http.StatusOK))
		Expect(rejected.Load()).To(BeZero())
		Expect(status()).To(Equal(http.StatusUnauthorized))
		Expect(status(others.issue("api-server", x509.ExtKeyUsageClientAuth))).To(Equal(http.StatusUnauthorized))
		Expect(status(theirs.issue("api-server", x509.ExtKeyUsageServerAuth))).To(Equal(http.StatusUnauthorized))
		Expect(status(theirs.issue("kubelet", x509.ExtKeyUsageClientAuth)) == http.StatusOK).To(Equal(names == nil))
		Expect(rejected.Load()).To(BeNumerically(">=", 3))
	}

	c := &config.Config{}
	c.WebhookClientCAFile = file
	accepted, err := newClients(c)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { Expect(accepted.Start(ctx)).To(Succeed()) })
	s := serve(t, func(s *server) { accepted.guard(s, func(metrics.Rejection) {}) })
	Expect(os.WriteFile(file, others.pem(), 0o600)).To(Succeed())
	Eventually(func() int {
		status, _ := s.get(t, others.issue("x", x509.ExtKeyUsageClientAuth))
		return status
	}).WithTimeout(2 * time.Minute).Should(Equal(http.StatusOK))
	cancel()
	following.Wait()
}

func TestClientCAsMustBeThere(t *testing.T) {
	Expect := NewWithT(t).Expect
	none, err := newClients(&config.Config{})
	Expect(err).NotTo(HaveOccurred())
	Expect(none).To(BeNil())
	c := &config.Config{}
	c.WebhookClientCAFile = filepath.Join(t.TempDir(), "none")
	_, err = newClients(c)
	Expect(err).To(MatchError(ContainSubstring("loading the CAs of the webhooks' clients")))
}

// calling is a connection from an address.
type calling struct {
	net.Conn
	from   string
	closed atomic.Bool
}

func (c *calling) RemoteAddr() net.Addr { return address(c.from) }
func (c *calling) Close() error         { c.closed.Store(true); return nil }

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) + ":1234" }

// callers is a listener with these connections.
type callers struct {
	net.Listener
	waiting []*calling
}

func (c *callers) Accept() (net.Conn, error) {
	if len(c.waiting) == 0 {
		return nil, errors.New("no more")
	}
	next := c.waiting[0]
	c.waiting = c.waiting[1:]
	return next, nil
}

// Connections are limited. One address can have half of them, and the program's own probes always have one.
func TestConnectionsAreLimited(t *testing.T) {
	Expect := NewWithT(t).Expect
	listener := &callers{}
	for _, from := range []string{"a", "a", "a", "b", "c", "b", "127.0.0.1", "c"} {
		listener.waiting = append(listener.waiting, &calling{from: from})
	}
	all, refused := listener.waiting, 0
	limited := &limitedListener{Listener: listener, most: 4, refused: func() { refused++ }}
	var accepted []net.Conn
	var from []string
	for {
		connection, err := limited.Accept()
		if err != nil {
			break
		}
		accepted, from = append(accepted, connection), append(from, connection.(*limitedConn).Conn.(*calling).from)
	}
	Expect(from).To(Equal([]string{"a", "a", "b", "c", "127.0.0.1"}), "four, and a probe")
	Expect(refused).To(Equal(3))
	Expect(all[2].closed.Load()).To(BeTrue())

	for range 2 {
		Expect(accepted[0].Close()).To(Succeed(), "twice counts once")
	}
	Expect(limited.enter("d")).To(BeTrue())
	Expect(limited.enter("d")).To(BeFalse())
	limited.leave("d")
	for _, connection := range accepted[1:] {
		Expect(connection.Close()).To(Succeed())
	}
	Expect(limited.of).To(BeEmpty())
	Expect(limited.all).To(BeZero())
}
