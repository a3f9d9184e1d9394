// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/heirloom-dev/heirloom/certs"
	"github.com/heirloom-dev/heirloom/pkg/config"
)

// certificate is what the webhook servers serve, and what provides it: a watcher of files, or our own.
type certificate struct {
	certs.Source

	watcher manager.Runnable
	own     *certs.Own
}

func newCertificate(c *config.Config) (*certificate, error) {
	if c.WebhookCertSecret != "" {
		own := &certs.Own{Secret: c.WebhookCertName, Hosts: c.WebhookCertDNSNames, Configuration: c.WebhookConfiguration, Dir: c.WebhookCertDir}
		return &certificate{Source: own.Source, own: own}, nil
	}
	source, watcher, err := certs.FromFiles(c.WebhookCertDir)
	return &certificate{Source: source, watcher: watcher}, err
}

// add makes the manager provide the certificate.
func (s *certificate) add(ctx context.Context, mgr ctrl.Manager) error {
	if s.own != nil {
		return s.own.Add(ctx, mgr)
	}
	if err := mgr.Add(s.watcher); err != nil {
		return fmt.Errorf("adding the watcher of the serving certificate: %w", err)
	}
	return nil
}
