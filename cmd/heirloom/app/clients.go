// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

// clients lets only those requests pass that come with an accepted client certificate. It is a manager.Runnable that follows
// the file of CAs.
type clients struct {
	*dynamiccertificates.DynamicFileCAContent
	authenticator.Request
}

// newClients returns nil if every client may call.
func newClients(c *config.Config) (*clients, error) {
	if c.WebhookClientCAFile == "" {
		return nil, nil
	}
	cas, err := dynamiccertificates.NewDynamicCAContentFromFile("webhook-client-ca", c.WebhookClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("loading the CAs of the webhooks' clients: %w", err)
	}
	accepted := &clients{DynamicFileCAContent: cas, Request: x509.NewDynamic(cas.VerifyOptions, x509.CommonNameUserConversion)}
	if len(c.WebhookClientNames) > 0 {
		accepted.Request = x509.NewDynamicCAVerifier(cas.VerifyOptions, accepted.Request, x509.StaticStringSlice(c.WebhookClientNames))
	}
	return accepted, nil
}

// Start implements manager.Runnable.
func (c *clients) Start(ctx context.Context) error {
	c.Run(ctx, 1)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*clients) NeedLeaderElection() bool { return false }

// guard makes a server ask for certificates. It checks them in the request and not in the handshake, so that the program's own
// probes need none.
func (c *clients) guard(s *server, rejected func(metrics.Rejection)) {
	s.Options.TLSOpts = append(s.Options.TLSOpts, func(config *tls.Config) { config.ClientAuth = tls.RequestClientCert })
	s.handler = func(webhooks http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, ok, err := c.AuthenticateRequest(r); err != nil || !ok {
				rejected(metrics.Unauthenticated)
				w.Header().Set("Connection", "close") // its body is not to be read
				http.Error(w, http.StatusText(http.StatusUnauthorized), http.StatusUnauthorized)
				return
			}
			webhooks.ServeHTTP(w, r)
		})
	}
}
