// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/controllers"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/connect"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// addClusterCache starts what connects to workload clusters.
func addClusterCache(
	ctx context.Context, mgr ctrl.Manager, c *config.Config, recorder events.EventRecorder,
) (clustercache.ClusterCache, error) {
	return connect.NewClusterCache(ctx, mgr, connect.Options{
		WatchFilter: c.WatchFilter, UserAgent: mgr.GetConfig().UserAgent,
		QPS: c.ClusterCacheClientQPS, Burst: c.ClusterCacheClientBurst, Concurrency: c.ClusterCacheConcurrency,
		SyncPeriod: c.SyncPeriod, Nodes: owners.Indexes(&corev1.Node{}), TrimNode: owners.TransformNode(c.Rules),
		Refused: controllers.KubeconfigRefused(mgr.GetClient(), recorder),
	})
}

// addRegistration starts what the webhooks of workload clusters need: a key that all replicas share. It returns nil where
// they have no URL.
func addRegistration(ctx context.Context, mgr ctrl.Manager, c *config.Config) (*webhook.Registrar, error) {
	if c.WorkloadWebhookURL == "" {
		return nil, nil
	}
	keys := &webhook.Store{}
	if err := follow(ctx, mgr.GetCache(), keys); err != nil {
		return nil, err
	}
	if err := mgr.Add(webhook.Maker{Client: mgr.GetClient(), Secret: c.WorkloadWebhookKeyName}); err != nil {
		return nil, fmt.Errorf("adding the maker of the key: %w", err)
	}
	return &webhook.Registrar{
		Management: mgr.GetAPIReader(), Installed: c.WebhookConfiguration, BaseURL: c.WorkloadWebhookURL, Keys: keys,
	}, nil
}

// follow keeps the key as its Secret has it. The cache holds no other Secret.
func follow(ctx context.Context, c cache.Cache, keys *webhook.Store) error {
	informer, err := c.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching the Secret of the key: %w", err)
	}
	set := func(object any) {
		secret, ok := object.(*corev1.Secret)
		if !ok {
			return
		}
		if err := keys.Set(secret); err != nil {
			ctrl.Log.Error(err, "Failed to read the key of workload clusters' webhooks; a known key stays in force")
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: set, UpdateFunc: func(_, object any) { set(object) },
	})
	if err != nil {
		return fmt.Errorf("watching the Secret of the key: %w", err)
	}
	return nil
}

// addWorkloadServer starts the server that workload clusters call. It is a separate one, because its clients must not reach the
// webhooks of the management cluster.
func addWorkloadServer(
	told context.Context, mgr ctrl.Manager, c *config.Config, served *certificate, dependencies webhooks.Dependencies, registrar *webhook.Registrar,
) error {
	if registrar == nil {
		return nil
	}
	hooks := ctrlwebhook.NewServer(ctrlwebhook.Options{})
	webhooks.RegisterWorkload(hooks, dependencies, registrar.Keys.Key)
	return addServer(mgr, c, c.WorkloadWebhookPort, served, newServer(told, "webhooks of workload clusters", hooks.WebhookMux()))
}

// nodeAdmission returns what admits the Nodes of workload clusters.
func nodeAdmission(c *config.Config, policy workload.ByPolicy, registrar *webhook.Registrar) *workload.Admission {
	all := &workload.Admission{
		Default: c.WorkloadAdmission,
		Ways:    map[string]workload.Way{workload.AdmitByPolicy: policy},
		Changes: make(chan event.GenericEvent),
	}
	if registrar != nil {
		all.Ways[workload.AdmitByWebhook] = registrar
		all.Changes = registrar.Keys.Subscribe()
	}
	return all
}
