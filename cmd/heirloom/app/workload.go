// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// addAdmission returns the ways to admit the Nodes of workload clusters, and the key of their webhooks, which all replicas share. Without a
// URL for these webhooks, there is no key.
func addAdmission(
	ctx context.Context, mgr ctrl.Manager, c *config.Config, policy workload.ByPolicy,
) (*workload.Admission, *webhook.Keys, error) {
	keys, ways := &webhook.Keys{Client: mgr.GetClient(), Secret: c.WorkloadWebhookKeyName}, map[string]workload.Way{inherit.AdmitByPolicy: policy}
	admission := &workload.Admission{Default: c.WorkloadAdmission, Ways: ways, Changes: keys.Subscribe()}
	if c.WorkloadWebhookURL == "" {
		return admission, keys, nil
	}
	ways[inherit.AdmitByWebhook] = &webhook.Registrar{
		Management: mgr.GetAPIReader(), Installed: c.WebhookConfiguration, BaseURL: c.WorkloadWebhookURL, Key: keys.Key,
	}
	if _, err := mgr.GetCache().GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false)); err != nil {
		return nil, nil, fmt.Errorf("watching the Secret of the key: %w", err)
	}
	return admission, keys, mgr.Add(keys)
}
