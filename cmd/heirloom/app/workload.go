// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// addAdmission returns what admits the Nodes of workload clusters, and the key for their webhooks, which all replicas share. Without a
// URL there is none.
func addAdmission(
	ctx context.Context, mgr ctrl.Manager, c *config.Config, policy workload.ByPolicy,
) (*workload.Admission, *webhook.Store, error) {
	keys, ways := &webhook.Store{}, map[string]workload.Way{workload.AdmitByPolicy: policy}
	admission := &workload.Admission{Default: c.WorkloadAdmission, Ways: ways, Changes: keys.Subscribe()}
	if c.WorkloadWebhookURL == "" {
		return admission, keys, nil
	}
	ways[workload.AdmitByWebhook] = &webhook.Registrar{
		Management: mgr.GetAPIReader(), Installed: c.WebhookConfiguration, BaseURL: c.WorkloadWebhookURL, Keys: keys,
	}
	if err := follow(ctx, mgr.GetCache(), keys); err != nil {
		return nil, nil, fmt.Errorf("watching the Secret of the key: %w", err)
	}
	return admission, keys, mgr.Add(webhook.Maker{Client: mgr.GetClient(), Secret: c.WorkloadWebhookKeyName})
}

// follow keeps the key as its Secret has it. The cache holds no other Secret.
func follow(ctx context.Context, c cache.Cache, keys *webhook.Store) error {
	informer, err := c.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	set := func(object any) {
		if secret, ok := object.(*corev1.Secret); ok {
			if err := keys.Set(secret); err != nil {
				ctrl.Log.Error(err, "Failed to read the key of workload clusters' webhooks; a known key stays in force")
			}
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: set, UpdateFunc: func(_, object any) { set(object) }})
	return err
}
