// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/heirloom-dev/heirloom/pkg/config"
)

// serve starts a server as the program does, for webhooks that request no certificate, and returns its URL.
func serve(t *testing.T, told context.Context, handler http.Handler) string {
	t.Helper()
	return serveClients(t, told, false, handler)
}

func serveClients(t *testing.T, told context.Context, asks bool, handler http.Handler) string {
	t.Helper()
	return "https://" + added(t, told, asks, handler).start(t)
}

// added returns a manager with a server that has not started yet.
func added(t *testing.T, told context.Context, asks bool, handler http.Handler) *onlyAdded {
	t.Helper()
	m, c := &onlyAdded{}, &config.Config{}
	c.WebhookHost = "127.0.0.1"
	NewWithT(t).Expect(addServer(m, c, 0, valid(t), asks, newServer(told, "webhooks", handler))).To(Succeed())
	return m
}

// onlyAdded is a manager that keeps runnables and does not run them.
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

// start runs the only added server until the test ends, and returns its address.
func (m *onlyAdded) start(t *testing.T) string {
	t.Helper()
	NewWithT(t).Expect(m.added).To(ConsistOf(BeAssignableToTypeOf(&manager.Server{})))
	server := m.added[0].(*manager.Server)
	runs(t, server)
	return server.Listener.Addr().String()
}

// runs starts a server that ends with the test.
func runs(t *testing.T, server *manager.Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Expect(<-ended).To(Succeed())
	})
}

// saysProtocol answers with the protocol of the request.
func saysProtocol() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
}

func TestHeadersOfWebhooksAreLimited(t *testing.T) {
	url := serve(t, t.Context(), saysProtocol())
	for size, want := range map[int]int{mostHeaders - 200: http.StatusOK, 2 * mostHeaders: http.StatusRequestHeaderFieldsTooLarge} {
		status, _ := statusOf(t, url, strings.Repeat("x", size))
		NewWithT(t).Expect(status).To(Equal(want), "%d bytes", size)
	}
}

// A request is lost if it is sent while the server closes the connection. So the program still answers after the signal to stop, and its
// answer says that the connection is closed.
func TestConnectionsAreClosedOnceToldToStop(t *testing.T) {
	Expect := NewWithT(t).Expect
	told, tell := context.WithCancel(t.Context())
	url := serve(t, told, saysProtocol())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // HTTP/1.1, as to a Service
	closed := func() bool {
		response, err := client.Get(url)
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

// dial connects to a server until the test ends.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// The number of connections is limited; the next connection is served after another is closed. The port of probes has more, because a client
// that keeps all of them causes a restart of the program.
func TestConnectionsAreLimited(t *testing.T) {
	patient := func(t *testing.T, m *onlyAdded) string {
		server := m.added[0].(*manager.Server).Server
		server.ReadHeaderTimeout, server.ReadTimeout = time.Hour, time.Hour // the test is about the limit only
		return m.start(t)
	}
	const probes = "probes"
	limits := map[string]int{probes: mostProbes}
	for name, start := range map[string]func(t *testing.T) string{
		"webhooks": func(t *testing.T) string { return added(t, t.Context(), false, saysProtocol()).start(t) },
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
			for range cmp.Or(limits[name], mostConnections) - 1 {
				dial(t, address)
			}
			answered := make(chan error, 1)
			last := dial(t, address)
			go func() {
				_, err := io.WriteString(last, "GET / HTTP/1.1\r\n\r\n") // every server answers this request, if only with an error
				if err == nil {
					_, err = last.Read(make([]byte, 1))
				}
				answered <- err
			}()
			NewWithT(t).Consistently(answered).WithTimeout(500 * time.Millisecond).ShouldNot(Receive())
			Expect(first.Close()).To(Succeed())
			Eventually(answered).WithTimeout(time.Minute).Should(Receive(BeNil()))
		})
	}
}

// Any client can make any number of handshakes fail.
func TestFailedHandshakesAreLoggedOnce(t *testing.T) {
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
		"webhooks": func(t *testing.T) string { return added(t, t.Context(), false, saysProtocol()).start(t) },
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
				_, err := connection.Write(make([]byte, 5)) // the bytes begin no handshake
				Expect(err).NotTo(HaveOccurred())
				_, _ = io.ReadAll(connection) // until the server has closed the connection
			}
			Expect(lines.Load()).To(BeEquivalentTo(1))
		})
	}
}

// counting counts the writes.
type counting struct{ writes *atomic.Int32 }

func (c counting) Write(line []byte) (int, error) {
	c.writes.Add(1)
	return len(line), nil
}

// oneConnection is a listener with a single connection.
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

// servesOne makes a server serve only this connection, in a bubble of synctest.
func servesOne(t *testing.T, server *manager.Server, connection net.Conn) {
	t.Helper()
	listener := oneConnection{connections: make(chan net.Conn, 1), closed: make(chan struct{})}
	listener.connections <- connection
	server.Listener = listener
	runs(t, server)
}

// API servers open connections ahead of time, and keep each for 90 seconds without a request. With HTTP/1.1, which they use with a Service,
// a request is lost if it is sent while the server closes the connection.
func TestAPIServersCloseUnusedConnectionsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		server := newServer(t.Context(), "webhooks", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(w, r.Body)
			Expect(err).NotTo(HaveOccurred())
		}))
		ours, theirs := net.Pipe()
		servesOne(t, server, tls.Server(theirs, &tls.Config{GetCertificate: valid(t)}))
		connection := tls.Client(ours, &tls.Config{InsecureSkipVerify: true})
		Expect(connection.HandshakeContext(t.Context())).To(Succeed())
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
	})
}

// The server answers a request that has begun before the stop, and then ends.
func TestShutdownDrainsRequests(t *testing.T) {
	g := NewWithT(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		_, _ = io.WriteString(w, "answered")
	})
	server := added(t, t.Context(), false, handler).added[0].(*manager.Server)
	address := server.Listener.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended, answer := make(chan error, 1), make(chan string, 1)
	go func() { ended <- server.Start(ctx) }()
	go func() {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		response, err := client.Get("https://" + address)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answer <- string(body)
	}()

	<-begun
	stop()
	g.Eventually(func() error {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = connection.Close()
		}
		return err
	}).Should(HaveOccurred(), "the server no longer listens")
	g.Expect(ended).NotTo(Receive())
	close(finish)
	g.Eventually(answer).Should(Receive(Equal("answered")))
	g.Eventually(ended).Should(Receive(BeNil()))
}
