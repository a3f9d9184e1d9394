// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

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
		s := newServer(webhook.Options{TLSOpts: []func(*tls.Config){func(config *tls.Config) { config.Certificates = []tls.Certificate{serving} }}})
		s.Register("/path", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(w, r.Body)
			Expect(err).NotTo(HaveOccurred())
		}))
		ours, theirs := net.Pipe()
		listener := oneConnection{connections: make(chan net.Conn, 1), closed: make(chan struct{})}
		listener.connections <- theirs
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.serve(ctx, tls.NewListener(listener, s.tlsConfig())) }()

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
