// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// What a client can make a webhook server hold. API servers wait 30 seconds for an answer at most, and two for Heirloom's.
const (
	answerTimeout = 30 * time.Second
	// unusedTimeout is how long a connection may be unused, also before its first request: an API server opens some that it does not need
	// at once. It keeps them for 90 seconds and speaks HTTP/1.1 to a Service, so if we closed one first, a request that it sends just then
	// would be lost. From the first byte on, intake has its own limits.
	unusedTimeout = 2 * time.Minute
	mostHeaders   = 64 << 10
	// mostConnections is how many there may be; half of them from one address. What is sent and not read yet takes at most
	// unreadBytes of memory for each.
	mostConnections = 1000
	unreadBytes     = 64 << 10
	mostStreams     = 100
	dialTimeout     = 10 * time.Second
)

// server is controller-runtime's webhook server with limits, of which that one has few.
type server struct {
	*webhook.DefaultServer
	// handler is around the webhooks.
	handler func(http.Handler) http.Handler
	// refused is called for each connection that is one too many.
	refused func()
	started atomic.Bool
}

func newServer(options webhook.Options) *server {
	options.WebhookMux = http.NewServeMux()
	return &server{
		DefaultServer: &webhook.DefaultServer{Options: options}, refused: func() {},
		handler: func(webhooks http.Handler) http.Handler { return webhooks },
	}
}

func (s *server) address() string {
	return net.JoinHostPort(s.Options.Host, strconv.Itoa(s.Options.Port))
}

// Start implements webhook.Server. Requests that are being answered when ctx is done are answered first.
func (s *server) Start(ctx context.Context) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", s.address())
	if err != nil {
		return fmt.Errorf("listening for webhooks: %w", err)
	}
	s.started.Store(true)
	return s.serve(ctx, tls.NewListener(&limitedListener{Listener: listener, most: mostConnections, refused: s.refused}, s.tlsConfig()))
}

func (s *server) tlsConfig() *tls.Config {
	config := &tls.Config{NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	for _, change := range s.Options.TLSOpts {
		change(config)
	}
	return config
}

func (s *server) serve(ctx context.Context, listener net.Listener) error {
	unending := context.WithoutCancel(ctx) // requests are finished once the server is told to stop
	served := &http.Server{
		BaseContext: func(net.Listener) context.Context { return unending }, Handler: s.handler(s.Options.WebhookMux),
		ReadHeaderTimeout: unusedTimeout, ReadTimeout: unusedTimeout, WriteTimeout: answerTimeout, IdleTimeout: unusedTimeout,
		MaxHeaderBytes: mostHeaders,
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: mostStreams, MaxReceiveBufferPerConnection: unreadBytes, MaxReceiveBufferPerStream: unreadBytes},
	}
	running := &manager.Server{Name: "webhooks", Server: served, Listener: listener, ShutdownTimeout: ptr.To(time.Minute)}
	if err := running.Start(ctx); err != nil {
		return fmt.Errorf("serving webhooks: %w", err)
	}
	return nil
}

// StartedChecker implements webhook.Server.
func (s *server) StartedChecker() healthz.Checker {
	return func(req *http.Request) error {
		if !s.started.Load() {
			return errors.New("the webhook server has not been started yet")
		}
		dialer := tls.Dialer{
			NetDialer: &net.Dialer{Timeout: dialTimeout},
			Config:    &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it is our own certificate, and nothing is sent
		}
		connection, err := dialer.DialContext(req.Context(), "tcp", s.address())
		if err != nil {
			return fmt.Errorf("the webhook server is not reachable: %w", err)
		}
		return connection.Close()
	}
}
