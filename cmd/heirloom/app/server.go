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

	"golang.org/x/net/netutil"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/heirloom-dev/heirloom/certs"
	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// What a client can make a webhook server hold. controller-runtime's own server has hardly any limit. API servers wait 30 seconds for an
// answer at most, and two for Heirloom's.
const (
	answerTimeout = 30 * time.Second
	// unusedTimeout is how long a connection may be unused, also before its first request: an API server opens some that it does not need
	// at once. It keeps them for 90 seconds and speaks HTTP/1.1 to a Service, so if we closed one first, a request that it sends just then
	// would be lost. From the first byte of a body on, the webhooks have a limit of their own.
	unusedTimeout = 2 * time.Minute
	mostHeaders   = 16 << 10
	// mostConnections is how many each server has; others wait until one is closed. What is sent and not read yet takes at most
	// unreadBytes of memory for each.
	mostConnections = 1000
	unreadBytes     = 64 << 10
	// mostStreams is how many requests of HTTP/2 there may be on a connection. Until it is told, Go's client expects 100; if it has sent
	// more than are accepted, it waits for a second.
	mostStreams = 100
)

// addCertificate returns what the webhook servers serve, and makes the manager keep it up to date. It comes from files, or is our own.
func addCertificate(ctx context.Context, mgr ctrl.Manager, c *config.Config) (certs.Source, error) {
	if c.WebhookCertSecret != "" {
		own := &certs.Own{Secret: c.WebhookCertName, Hosts: c.WebhookCertDNSNames, Configuration: c.WebhookConfiguration, Dir: c.WebhookCertDir}
		return own.Source, own.Add(ctx, mgr)
	}
	watcher, err := certs.FromFiles(c.WebhookCertDir)
	if err != nil {
		return nil, err
	}
	return watcher.GetCertificate, mgr.Add(watcher)
}

// addServers starts the server that the management cluster's API servers call and, if there is a URL for them, another server for
// workload clusters, because they must not reach the webhooks of the management cluster.
func addServers(
	ctx, told context.Context, mgr ctrl.Manager, c *config.Config, served certs.Source, key func() []byte, dependencies webhooks.Dependencies,
) error {
	management := webhook.NewServer(webhook.Options{})
	webhooks.Register(management, dependencies)
	handler, err := onlyClients(ctx, c, management.WebhookMux(), dependencies.Metrics.AdmissionRejected(metrics.ManagementServer))
	if err != nil {
		return err
	}
	err = addServer(mgr, c, c.WebhookPort, served, newServer(told, "webhooks", handler))
	if err != nil || c.WorkloadWebhookURL == "" {
		return err
	}
	workload := webhook.NewServer(webhook.Options{})
	webhooks.RegisterWorkload(workload, dependencies, key)
	return addServer(mgr, c, c.WorkloadWebhookPort, served, newServer(told, "webhooks of workload clusters", workload.WebhookMux()))
}

// newServer returns a server of webhooks. Once told is done it goes on to answer, and closes each connection with its answer: API servers
// keep connections for a long time, even to a Pod that has left the Service, and a request that is sent just when such a connection is
// closed would be lost, and its object pass untouched.
func newServer(told context.Context, name string, webhooks http.Handler) *manager.Server {
	return &manager.Server{Name: name, Server: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if told.Err() != nil {
				w.Header().Set("Connection", "close")
			}
			webhooks.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: unusedTimeout, ReadTimeout: unusedTimeout, WriteTimeout: answerTimeout, IdleTimeout: unusedTimeout,
		MaxHeaderBytes: mostHeaders,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: mostStreams, MaxReceiveBufferPerConnection: unreadBytes, MaxReceiveBufferPerStream: unreadBytes,
		},
	}}
}

// addServer lets the manager run a server of webhooks, and stop it last. Its port is bound now, so a program that answers probes listens.
func addServer(mgr ctrl.Manager, c *config.Config, port int, served certs.Source, server *manager.Server) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(c.WebhookHost, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("listening for webhooks: %w", err)
	}
	tlsConfig := &tls.Config{NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert} // see onlyClients
	for _, change := range c.TLS {
		change(tlsConfig)
	}
	tlsConfig.GetCertificate = served
	server.Listener = tls.NewListener(netutil.LimitListener(listener, mostConnections), tlsConfig)
	return mgr.Add(server)
}

// onlyClients lets only requests with an accepted client certificate pass, if --webhook-client-ca-file says which are accepted. It follows
// that file until ctx is done.
func onlyClients(ctx context.Context, c *config.Config, webhooks http.Handler, rejected func(metrics.Rejection)) (http.Handler, error) {
	if c.WebhookClientCAFile == "" {
		return webhooks, nil
	}
	cas, err := dynamiccertificates.NewDynamicCAContentFromFile("webhook-client-ca", c.WebhookClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("loading the CAs of the webhooks' clients: %w", err)
	}
	go cas.Run(ctx, 1)
	users := x509.NewDynamic(cas.VerifyOptions, x509.CommonNameUserConversion)
	verifier := x509.NewDynamicCAVerifier(cas.VerifyOptions, users, x509.StaticStringSlice(c.WebhookClientNames))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok, err := verifier.AuthenticateRequest(r); err != nil || !ok {
			rejected(metrics.Unauthenticated)
			w.Header().Set("Connection", "close") // its body is not to be read
			http.Error(w, http.StatusText(http.StatusUnauthorized), http.StatusUnauthorized)
			return
		}
		webhooks.ServeHTTP(w, r)
	}), nil
}

// addChecks makes the probes tell the truth: ready means that the caches have been filled and the certificate is valid. The caches then
// have what admission needs in any case. Kinds of providers, which they begin to hold later, do not count: a kind that cannot be listed
// would leave no replica ready to answer for the others. A server of webhooks that fails ends the program, so no probe connects to it: a
// client that takes all connections would have the program restarted.
func addChecks(mgr ctrl.Manager, served certs.Source, filled *atomic.Bool) error {
	synced := func(*http.Request) error {
		if !filled.Load() {
			return errors.New("the informer caches are not filled yet")
		}
		return nil
	}
	return errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", synced), mgr.AddReadyzCheck("certificate", served.Check))
}
