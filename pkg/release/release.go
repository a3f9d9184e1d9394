// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"io"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// Options say what is released, and how.
type Options struct {
	// Namespace, WatchFilter, ManagementCluster and ProviderGroups are the same as Heirloom's own.
	Namespace, WatchFilter string
	ManagementCluster      types.NamespacedName
	ProviderGroups         []string

	// WebhookConfiguration is the name of the installed webhook configurations, Lease that of the leader's Lease.
	WebhookConfiguration string
	Lease                types.NamespacedName
	// WorkloadWebhookURL and WorkloadWebhookKey are the URL that workload clusters were told, and the Secret of its keys.
	// Both may be empty.
	WorkloadWebhookURL string
	WorkloadWebhookKey types.NamespacedName
	// Concurrency is how many workload clusters are worked on at a time.
	Concurrency int

	// Only is what a release of one object or of one Cluster is about; without it, everything is released.
	Only *Only

	// DeleteWebhookConfigurations and TakeLease stop Heirloom first. Without them nothing is done while it runs.
	DeleteWebhookConfigurations, TakeLease bool
	// OnlyWebhookConfigurations ends when the webhook configurations are gone.
	OnlyWebhookConfigurations bool
	// OnlyWorkloadClusters removes only what admits Nodes in workload clusters, within a time limit for each and for all.
	// With PassOverUnreachable, an unreachable one is reported and is no error.
	OnlyWorkloadClusters, PassOverUnreachable bool
	// KeepValues leaves labels, annotations, taints and fields where they are, without an owner.
	KeepValues bool
	// DryRun writes nothing.
	DryRun bool
}

// Releaser gives up what Heirloom owns.
type Releaser struct {
	Options
	// Management is a client of the management cluster that reads from its API server.
	Management client.Client
	Discovery  discovery.DiscoveryInterface
	// Workload makes a client of a Cluster's workload cluster.
	Workload func(ctx context.Context, cluster types.NamespacedName) (client.Client, error)
	// Out gets a line for each object that is written, Progress everything else that helps a person at the terminal.
	Out, Progress io.Writer
}

// New returns a Releaser for the Heirloom with this configuration. It still needs to know where to report and, unless only webhook
// configurations go, how workload clusters are reached.
func New(c *config.Config, what Options, management client.Client, d discovery.DiscoveryInterface) *Releaser {
	what.Namespace, what.WatchFilter, what.ManagementCluster = c.Namespace, c.WatchFilter, c.ManagementClusterKey
	what.ProviderGroups, what.Concurrency = c.ProviderGroups, c.ClusterCacheConcurrency
	what.WebhookConfiguration = c.WebhookConfiguration
	what.Lease = types.NamespacedName{Namespace: c.LeaderElectNamespace, Name: c.LeaderElectionID()}
	what.WorkloadWebhookURL, what.WorkloadWebhookKey = c.WorkloadWebhookURL, c.WorkloadWebhookKeyName
	what.DeleteWebhookConfigurations = what.DeleteWebhookConfigurations || what.OnlyWebhookConfigurations
	return &Releaser{Options: what, Management: management, Discovery: d}
}

// Run gives up everything. Its error names what failed; the rest is done, and another run does what is missing.
func (r Releaser) Run(ctx context.Context) error {
	s := &session{Releaser: r, report: &report{out: r.Out, progress: r.Progress, dryRun: r.DryRun}}
	s.management = s.reporting(r.Management, "")
	if r.Only != nil {
		return s.only(ctx)
	}
	if err := s.stopWebhooks(ctx); err != nil || r.OnlyWebhookConfigurations {
		return err
	}
	if r.OnlyWorkloadClusters {
		return s.withdraw(ctx)
	}
	return s.withoutLeader(ctx, s.release)
}

// session is one run.
type session struct {
	Releaser
	report     *report
	management reporting
}

func (s *session) release(ctx context.Context) error {
	kinds, err := s.kinds()
	if err != nil {
		return err
	}
	scope, err := s.scope(ctx)
	if err != nil {
		return err
	}
	keys, secret, err := s.keys(ctx)
	if err != nil {
		return err
	}
	var both sync.WaitGroup
	both.Go(func() {
		for _, kind := range kinds {
			s.objects(ctx, kind, scope)
		}
		s.nodes(ctx, s.management, scope.hasNode)
	})
	both.Go(func() { s.workloads(ctx, keys) })
	both.Wait()
	if err := s.report.err(); err != nil || secret == nil {
		return err // the keys prove, next time, which webhook configurations are ours
	}
	err = s.management.Delete(ctx, secret, client.Preconditions{UID: &secret.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the keys of workload clusters' webhooks: %w", err)
	}
	return nil
}

// keys reads the keys that prove which webhook configurations in workload clusters lead to this Heirloom, and their Secret, if
// there is one.
func (s *session) keys(ctx context.Context) (*webhook.Store, *corev1.Secret, error) {
	keys, secret := &webhook.Store{}, &corev1.Secret{}
	if s.WorkloadWebhookKey.Name == "" {
		return keys, nil, nil
	}
	if err := s.management.Get(ctx, s.WorkloadWebhookKey, secret); apierrors.IsNotFound(err) {
		return keys, nil, nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("reading the keys of workload clusters' webhooks: %w", err)
	}
	if err := keys.Set(secret); err != nil {
		s.report.note("%v; webhook configurations in workload clusters are told by --workload-webhook-url alone", err)
	}
	return keys, secret, nil
}
