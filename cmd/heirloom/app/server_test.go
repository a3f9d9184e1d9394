// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/webhooks"
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
	ca      issuer
	address string
}

// serve starts a server as the program does, for webhooks that ask for no certificate.
func serve(t *testing.T, told context.Context, handler http.Handler) served {
	t.Helper()
	return serveClients(t, told, false, handler)
}

func serveClients(t *testing.T, told context.Context, asks bool, handler http.Handler) served {
	t.Helper()
	Expect := NewWithT(t).Expect
	ca := newIssuer(t)
	serving := ca.issue("server", x509.ExtKeyUsageServerAuth)
	server, running := newServer(told, "webhooks", handler), &onlyAdded{}
	c := &config.Config{}
	c.WebhookHost = "127.0.0.1"
	Expect(addServer(running, c, 0, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil }, asks, server)).To(Succeed())
	return served{ca: ca, address: running.start(t)}
}

// onlyAdded is a manager that runs nothing by itself.
type onlyAdded struct {
	manager.Manager
	config *rest.Config
	added  []manager.Runnable
}

func (m *onlyAdded) Add(r manager.Runnable) error {
	m.added = append(m.added, r)
	return nil
}

func (m *onlyAdded) GetConfig() *rest.Config     { return m.config }
func (m *onlyAdded) GetHTTPClient() *http.Client { return http.DefaultClient }

// start runs the only server that was added until the test ends, and returns its address.
func (m *onlyAdded) start(t *testing.T) string {
	t.Helper()
	NewWithT(t).Expect(m.added).To(ConsistOf(BeAssignableToTypeOf(&manager.Server{})))
	server := m.added[0].(*manager.Server)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Expect(<-ended).To(Succeed())
	})
	return server.Listener.Addr().String()
}

// saysProtocol answers with the protocol of the request.
func saysProtocol() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
}

// get asks as a client with that certificate, or without one.
func (s served) get(t *testing.T, certificates ...tls.Certificate) (status int, body string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	trusted := x509.NewCertPool()
	trusted.AddCert(s.ca.cert)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted, Certificates: certificates, ServerName: "localhost"}, ForceAttemptHTTP2: true,
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address, nil)
	Expect(err).NotTo(HaveOccurred())
	response, err := transport.RoundTrip(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(content)
}

// With HTTP/2, a connection has many requests at a time, whose headers it keeps until their answers are read.
func TestWebhooksDoNotSpeakHTTP2(t *testing.T) {
	status, body := serve(t, t.Context(), saysProtocol()).get(t)
	NewWithT(t).Expect(status).To(Equal(http.StatusOK))
	NewWithT(t).Expect(body).To(Equal("HTTP/1.1"))
}

func TestHeadersOfWebhooksAreLimited(t *testing.T) {
	s := serve(t, t.Context(), saysProtocol())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for size, want := range map[int]int{mostHeaders - 200: http.StatusOK, 2 * mostHeaders: http.StatusRequestHeaderFieldsTooLarge} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address, http.NoBody)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		request.Header.Set("X", strings.Repeat("x", size))
		response, err := client.Do(request)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(response.Body.Close()).To(Succeed())
		NewWithT(t).Expect(response.StatusCode).To(Equal(want), "%d bytes", size)
	}
}

// A request that is sent when a connection is closed is lost. So once the program has been told to stop it still answers, and its answer
// says that the connection is closed.
func TestConnectionsAreClosedOnceToldToStop(t *testing.T) {
	Expect := NewWithT(t).Expect
	told, tell := context.WithCancel(t.Context())
	s := serve(t, told, saysProtocol())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // HTTP/1.1, as to a Service
	closed := func() bool {
		response, err := client.Get("https://" + s.address)
		Expect(err).NotTo(HaveOccurred())
		Expect(io.ReadAll(response.Body)).To(BeEquivalentTo("HTTP/1.1"))
		Expect(response.Body.Close()).To(Succeed())
		return response.Close
	}
	Expect(closed()).To(BeFalse())
	tell()
	Expect(closed()).To(BeTrue())
	Expect(closed()).To(BeTrue())
}

// dial connects to a server for as long as the test runs.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// There is no more than so many connections; the next is served when one of them is closed. But whoever keeps all of the probes' must not
// have the program restarted.
func TestConnectionsAreLimited(t *testing.T) {
	patient := func(t *testing.T, m *onlyAdded) string {
		server := m.added[0].(*manager.Server).Server
		server.ReadHeaderTimeout, server.ReadTimeout = time.Hour, time.Hour // nothing but the limit is tested
		return m.start(t)
	}
	const probes = "probes"
	for name, start := range map[string]func(t *testing.T) string{
		"webhooks": func(t *testing.T) string { return serve(t, t.Context(), saysProtocol()).address },
		probes: func(t *testing.T) string {
			m := &onlyAdded{}
			NewWithT(t).Expect(addProbes(m, parse(t), valid(t), &atomic.Bool{})).To(Succeed())
			return patient(t, m)
		},
		"diagnostics": func(t *testing.T) string {
			m := &onlyAdded{config: &rest.Config{}}
			NewWithT(t).Expect(addDiagnostics(m, parse(t), valid(t))).To(Succeed())
			return patient(t, m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			Expect, Eventually := NewWithT(t).Expect, NewWithT(t).Eventually
			address := start(t)
			first := dial(t, address)
			for range mostConnections - 1 {
				dial(t, address)
			}
			answered := make(chan error, 1)
			last := dial(t, address)
			go func() {
				_, err := io.WriteString(last, "GET / HTTP/1.1\r\n\r\n") // which every server answers, if only with an error
				if err == nil {
					_, err = last.Read(make([]byte, 1))
				}
				answered <- err
			}()
			if name != probes {
				NewWithT(t).Consistently(answered).WithTimeout(500 * time.Millisecond).ShouldNot(Receive())
				Expect(first.Close()).To(Succeed())
			}
			Eventually(answered).WithTimeout(time.Minute).Should(Receive(BeNil()))
		})
	}
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
		var rejected atomic.Int32
		handler, err := onlyClients(t.Context(), c, saysProtocol(), func(why metrics.Rejection) {
			Expect(why).To(Equal(metrics.Unauthenticated))
			rejected.Add(1)
		})
		Expect(err).NotTo(HaveOccurred())
		s := serveClients(t, t.Context(), true, handler)
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
	handler, err := onlyClients(t.Context(), c, saysProtocol(), func(metrics.Rejection) {})
	Expect(err).NotTo(HaveOccurred())
	s := serveClients(t, t.Context(), true, handler)
	Expect(os.WriteFile(file, others.pem(), 0o600)).To(Succeed())
	Eventually(func() int {
		status, _ := s.get(t, others.issue("x", x509.ExtKeyUsageClientAuth))
		return status
	}).WithTimeout(2 * time.Minute).Should(Equal(http.StatusOK))
}

// Go parses what a client sends as its certificates, and keeps ten times as much for each connection.
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
			s := serveClients(t, t.Context(), tc.asks, answered)
			transport := &http.Transport{TLSClientConfig: &tls.Config{
				InsecureSkipVerify:   true,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tc.sent, nil },
			}}
			defer transport.CloseIdleConnections()
			response, err := (&http.Client{Transport: transport}).Get("https://" + s.address)
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

// Only the server of the management cluster's API servers asks for certificates, and only if it was told whose are accepted.
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

// Any client can make as many handshakes fail as it likes.
func TestHandshakesThatFailDoNotFillTheLog(t *testing.T) {
	var lines atomic.Int32
	previous, stderr := ctrl.Log, log.Writer()
	defer func() {
		ctrl.Log = previous
		log.SetOutput(stderr)
	}()
	log.SetOutput(counting{&lines})
	ctrl.Log = funcr.New(func(_, args string) {
		if strings.Contains(args, "TLS handshake error") {
			lines.Add(1)
		}
	}, funcr.Options{})
	for name, start := range map[string]func(t *testing.T) string{
		"webhooks": func(t *testing.T) string { return serve(t, t.Context(), saysProtocol()).address },
		"diagnostics": func(t *testing.T) string {
			m := &onlyAdded{config: reviews(t)}
			NewWithT(t).Expect(addDiagnostics(m, parse(t), valid(t))).To(Succeed())
			return m.start(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			lines.Store(0)
			address := start(t)
			for range 10 {
				connection := dial(t, address)
				_, err := connection.Write(make([]byte, 5)) // which begins no handshake
				Expect(err).NotTo(HaveOccurred())
				_, _ = io.ReadAll(connection) // until the server has closed it
			}
			Expect(lines.Load()).To(BeEquivalentTo(1))
		})
	}
}

// counting counts what is written.
type counting struct{ writes *atomic.Int32 }

func (c counting) Write(line []byte) (int, error) {
	c.writes.Add(1)
	return len(line), nil
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

// oneConnection is a listener to which one client connects.
type oneConnection struct {
	connections chan net.Conn
	closed      chan struct{}
}

func (l oneConnection) Accept() (net.Conn, error) {
	select {
	case connection := <-l.connections:
		return connection, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l oneConnection) Close() error { close(l.closed); return nil }
func (oneConnection) Addr() net.Addr { return &net.TCPAddr{} }

// API servers open connections that they do not need at once, and keep each for 90 seconds without a request. With HTTP/1.1, which they speak
// to a Service, a request is lost if it is sent when the server closes the connection.
func TestAPIServersCloseUnusedConnectionsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		serving := newIssuer(t).issue("server", x509.ExtKeyUsageServerAuth)
		server := newServer(t.Context(), "webhooks", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(w, r.Body)
			Expect(err).NotTo(HaveOccurred())
		}))
		ours, theirs := net.Pipe()
		listener := oneConnection{connections: make(chan net.Conn, 1), closed: make(chan struct{})}
		listener.connections <- theirs
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		server.Listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{serving}})
		go func() { ended <- server.Start(ctx) }()

		connection := tls.Client(ours, &tls.Config{InsecureSkipVerify: true})
		Expect(connection.HandshakeContext(ctx)).To(Succeed())
		answers := bufio.NewReader(connection)
		for range 3 {
			<-time.After(91 * time.Second)
			_, err := io.WriteString(connection, "POST /path HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\nreview")
			Expect(err).NotTo(HaveOccurred())
			response, err := http.ReadResponse(answers, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(io.ReadAll(response.Body)).To(BeEquivalentTo("review"))
		}
		Expect(connection.Close()).To(Succeed())
		cancel()
		Expect(<-ended).To(Succeed())
	})
}
