// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/heirloom-dev/heirloom/certs"
	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// Limits on the resources that a client can make a server hold. controller-runtime's own servers have hardly any limit. No server speaks
// HTTP/2, which has many requests on a connection at a time: API servers use only HTTP/1.1 for webhooks
// (k8s.io/apiserver/pkg/util/webhook), unless the host of the webhook's URL is localhost, where they speak both.
const (
	// unusedTimeout is how long a connection of webhooks may be unused, also before its first request: an API server opens connections before
	// it needs them. It keeps them for 90 seconds. If Heirloom closed a connection first, a request that is sent at this moment would be lost.
	// From the first byte of a body on, the webhooks have their own limit.
	unusedTimeout = 2 * time.Minute
	// briefTimeout is the timeout of probes and diagnostics, whose requests are small and come in one piece.
	briefTimeout = 5 * time.Second
	mostHeaders  = 8 << 10
	// mostConnections limits the connections of a server of webhooks or diagnostics; other clients wait until a connection is closed.
	// mostProbes is larger: a client that keeps probes waiting would have the program restarted, and needs a thousand connections a second.
	mostConnections, mostProbes = 1000, 5000
	// The limits of a client certificate with its intermediate CAs. Go keeps ten times this size for each connection.
	mostCertificates, mostCertificateBytes = 5, 16 << 10
	// failuresLogged is how often each server logs failures before a request, such as a failed TLS handshake, which any client can cause.
	failuresLogged = time.Minute
)

// addCertificate returns the serving certificate of the webhooks, from files or Heirloom's own, and makes the manager keep it up to date.
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

// addServers adds the server for the management cluster's API servers and, if the webhooks of workload clusters have a URL, another server
// for workload clusters, because they must not reach the webhooks of the management cluster.
func addServers(ctx, told context.Context, c *config.Config, served certs.Source, h *Heirloom) error {
	management := webhook.NewServer(webhook.Options{})
	webhooks.Register(management, h.Webhooks)
	handler, err := onlyClients(ctx, c, management.WebhookMux(), h.metrics.AdmissionRejected(metrics.ManagementServer))
	if err != nil {
		return err
	}
	err = addServer(h.Manager, c, c.WebhookPort, served, c.WebhookClientCAFile != "", newServer(told, "webhooks", handler))
	if err != nil || c.WorkloadWebhookURL == "" {
		return err
	}
	workload := webhook.NewServer(webhook.Options{})
	webhooks.RegisterWorkload(workload, h.Webhooks, h.Key)
	return addServer(h.Manager, c, c.WorkloadWebhookPort, served, false, newServer(told, "webhooks of workload clusters", workload.WebhookMux()))
}

// newServer returns a server of webhooks. Once told is done, it still answers, and closes each connection with its answer: API servers keep
// connections for a long time, even to a Pod that has left the Service. A request that is sent just when its connection is closed would be
// lost, and its object would pass unchanged.
func newServer(told context.Context, name string, webhooks http.Handler) *manager.Server {
	return bounded(name, unusedTimeout, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if told.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		webhooks.ServeHTTP(w, r)
	}))
}

// bounded returns a server with the limits that all servers have.
func bounded(name string, unused time.Duration, handler http.Handler) *manager.Server {
	return &manager.Server{Name: name, Server: &http.Server{
		Handler: handler, ErrorLog: log.New(&failures{server: name, sometimes: rate.Sometimes{Interval: failuresLogged}}, "", 0),
		ReadHeaderTimeout: unused, ReadTimeout: unused, WriteTimeout: webhooks.LongestAnswer, IdleTimeout: unused, MaxHeaderBytes: mostHeaders,
	}}
}

// failures logs some of the errors that net/http reports for a server.
type failures struct {
	server    string
	sometimes rate.Sometimes
}

// Write implements io.Writer.
func (f *failures) Write(line []byte) (int, error) {
	f.sometimes.Do(func() {
		ctrl.Log.Info("Connection failed; failures that follow soon are not logged", "server", f.server, "why", strings.TrimSpace(string(line)))
	})
	return len(line), nil
}

// addServer makes the manager run a server of webhooks. If asks is set, the server asks its clients for a certificate.
func addServer(mgr ctrl.Manager, c *config.Config, port int, served certs.Source, asks bool, server *manager.Server) error {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: served}
	if asks { // see onlyClients
		tlsConfig.ClientAuth, tlsConfig.VerifyConnection = tls.RequestClientCert, fewCertificates
	}
	return listen(mgr, c, net.JoinHostPort(c.WebhookHost, strconv.Itoa(port)), mostConnections, server, tlsConfig)
}

// fewCertificates refuses a client that sends more certificates than an API server has.
func fewCertificates(state tls.ConnectionState) error {
	size := 0
	for _, certificate := range state.PeerCertificates {
		size += len(certificate.Raw)
	}
	if len(state.PeerCertificates) > mostCertificates || size > mostCertificateBytes {
		return errors.New("the client sent too many certificates")
	}
	return nil
}

// listen makes the manager run a server, and stop it last. It binds the port at once, so a program that answers probes listens. The server
// has at most this number of connections.
func listen(mgr ctrl.Manager, c *config.Config, address string, most int, server *manager.Server, tlsConfig *tls.Config) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening for %s: %w", server.Name, err)
	}
	listener = netutil.LimitListener(listener, most)
	if tlsConfig != nil {
		for _, change := range c.TLS {
			change(tlsConfig)
		}
		listener = tls.NewListener(listener, tlsConfig)
	}
	server.Listener = listener
	return mgr.Add(server)
}

// onlyClients passes only requests with an accepted client certificate, if --webhook-client-ca-file is set. It reloads this file until ctx
// is done.
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
			w.Header().Set("Connection", "close") // so that the body is not read
			http.Error(w, http.StatusText(http.StatusUnauthorized), http.StatusUnauthorized)
			return
		}
		webhooks.ServeHTTP(w, r)
	}), nil
}

// addProbes adds the probes. Ready means that the caches have synced and the certificate is valid. The caches then have all kinds that
// admission always needs. Kinds of providers, which are cached later, do not count: a kind that cannot be listed would leave no replica
// ready for the other kinds. A server of webhooks that fails ends the program, so no probe connects to it.
func addProbes(mgr ctrl.Manager, c *config.Config, served certs.Source, filled *atomic.Bool) error {
	synced := func(*http.Request) error {
		if !filled.Load() {
			return errors.New("the informer caches are not synced yet")
		}
		return nil
	}
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{
		"/healthz": {"ping": healthz.Ping}, "/readyz": {"caches": synced, "certificate": served.Check},
	} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler) // each check by its name
	}
	return listen(mgr, c, c.HealthAddr, mostProbes, bounded("probes", briefTimeout, mux), nil)
}

// addDiagnostics serves the paths of controller-runtime's metrics server. It adds limits, and uses the certificate of the webhooks, which
// clients can verify.
func addDiagnostics(mgr ctrl.Manager, c *config.Config, served certs.Source) error {
	address := cmp.Or(c.Metrics.BindAddress, metricsserver.DefaultBindAddress)
	if address == "0" {
		return nil
	}
	handlers := map[string]http.Handler{
		"/metrics": promhttp.HandlerFor(ctrlmetrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}),
	}
	maps.Copy(handlers, c.Metrics.ExtraHandlers)
	mux := http.NewServeMux()
	for path, handler := range handlers {
		mux.Handle(path, handler)
	}
	server := bounded("diagnostics", briefTimeout, mux)
	if !c.Metrics.SecureServing {
		return listen(mgr, c, address, mostConnections, server, nil)
	}
	filter, err := c.Metrics.FilterProvider(mgr.GetConfig(), mgr.GetHTTPClient())
	if err == nil {
		server.Server.Handler, err = filter(ctrl.Log.WithName("diagnostics"), mux)
	}
	if err != nil {
		return fmt.Errorf("authenticating clients of diagnostics: %w", err)
	}
	return listen(mgr, c, address, mostConnections, server, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: served})
}
