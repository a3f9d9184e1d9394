// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/heirloom-dev/heirloom/certs"
	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/rotation"
	workloadwebhook "github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// certificate is what the webhook servers serve, and what keeps it up to date.
type certificate struct {
	certs.Source

	updater manager.Runnable
	// keeper is the updater where the certificate is Heirloom's own, else nil.
	keeper *certs.Keeper
}

func newCertificate(c *config.Config) (*certificate, error) {
	if c.WebhookCertSecret == "" {
		source, watcher, err := certs.FromFiles(c.WebhookCertDir)
		if err != nil {
			return nil, err
		}
		return &certificate{Source: source, updater: watcher}, nil
	}
	keeper := &certs.Keeper{
		Schedule: certs.Schedule{
			Hosts: c.WebhookCertHosts, Validity: c.WebhookCertValidity, CAValidity: c.WebhookCertCAValidity, Grace: c.WebhookCertCAGrace,
		},
		Shared: rotation.Shared{Secret: c.WebhookCertName, Now: time.Now}, Configuration: c.WebhookConfiguration,
	}
	return &certificate{Source: keeper.Source(), updater: keeper, keeper: keeper}, nil
}

// add starts the updater of the certificate. If there is a registrar, workload clusters learn of a new CA at once.
func (s *certificate) add(mgr ctrl.Manager, registrar *workloadwebhook.Registrar) error {
	if s.keeper != nil {
		s.keeper.Live, s.keeper.Writer = mgr.GetAPIReader(), mgr.GetClient()
		if registrar != nil {
			s.keeper.Published = registrar.Keys.Publish
		}
	}
	if err := mgr.Add(s.updater); err != nil {
		return fmt.Errorf("adding the keeper of the serving certificate: %w", err)
	}
	return nil
}
