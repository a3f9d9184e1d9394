// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/cleanup"
	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/workload/connect"
)

// newCleanupCommand returns the command heirloom cleanup.
func newCleanupCommand() *cobra.Command {
	options := config.NewOptions()
	var what cleanup.Options
	command := &cobra.Command{
		Use:   "cleanup",
		Short: "Give up everything that Heirloom owns, before you uninstall it",
		Long: `Cleanup gives up everything that Heirloom owns or tracks:

* In objects of Cluster API and of its providers, the fields of field manager heirloom. Fields without another owner are removed.
* On Nodes, of the management cluster and of every workload cluster, the labels, annotations and taints that the
  annotations heirloom.dev/*-from-machine list, these annotations, and the taint node.cluster.x-k8s.io/uninitialized
  where Heirloom added it. Entries that cluster.x-k8s.io/*-from-machine lists belong to Cluster API, and stay.
* In workload clusters, the webhook configuration, or the admission policy with its parameters.
* The Secret of --workload-webhook-key-secret.

--only-workload-clusters does only the third step.

Once a taint is removed from a Node, Pods that do not tolerate it can be scheduled there; --keep-values keeps taints. Try --dry-run.

Stop Heirloom first: use --stop, or delete its webhook configurations and scale its Deployment to 0. Use the same flags as for
Heirloom itself. A second run changes nothing. If something cannot be cleaned up, for example in a workload cluster that does not
answer, the command does the rest and ends with an error.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := options.Complete()
			if err != nil {
				return err
			}
			ctrl.SetLogger(briefly(klog.Background()))
			cleaner, err := newCleaner(c, what)
			if err != nil {
				return err
			}
			cleaner.Out, cleaner.Progress = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return cleaner.Run(cmd.Context())
		},
	}
	fs := command.Flags()
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	options.AddCleanupFlags(fs)
	fs.BoolVar(&what.DryRun, "dry-run", false, "Only print the writes, without making them.")
	fs.BoolVar(&what.KeepValues, "keep-values", false,
		"Keep labels, annotations, taints and fields, and give up only their ownership and tracking. "+
			"Nothing removes them automatically after that, even when they are no longer declared.")
	fs.BoolVar(&what.Stop, "stop", false,
		"Stop Heirloom first: delete the webhook configurations of --webhook-configuration, scale the Deployment of the same name in "+
			"--leader-elect-namespace to 0, and wait until no replica leads. Without this flag, the command refuses to run while Heirloom runs.")
	fs.BoolVar(&what.OnlyWebhookConfigurations, "only-webhook-configurations", false, "Delete the webhook configurations, and do nothing else.")
	fs.BoolVar(&what.OnlyWorkloadClusters, "only-workload-clusters", false,
		"Delete the objects through which workload clusters admit Nodes, and keep all inherited entries. "+
			"A workload cluster that does not answer within ten seconds is no error; the command reports it, also in an Event on its Cluster.")
	fs.StringVar(&what.HookJob, "hook-job", "",
		"Name of the Job, in --leader-elect-namespace, that runs this command for helm uninstall. The command does nothing if another tool than Helm "+
			"or Argo CD has created the Job, or if Helm has not installed Heirloom.")
	command.MarkFlagsMutuallyExclusive("only-workload-clusters", "only-webhook-configurations")
	return command
}

func newCleaner(c *config.Config, what cleanup.Options) (*cleanup.Cleaner, error) {
	if c.LeaderElectNamespace == "" && !what.DryRun && !what.OnlyWebhookConfigurations {
		return nil, errors.New("--leader-elect-namespace is required: the namespace in which Heirloom is installed")
	}
	restConfig, err := restConfigOf(c)
	if err != nil {
		return nil, err
	}
	management, err := client.New(restConfig, client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, fmt.Errorf("creating the client of the management cluster: %w", err)
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		return nil, fmt.Errorf("creating the discovery client: %w", err)
	}
	cleaner := &cleanup.Cleaner{Options: what, Config: c, Management: management, Discovery: discoveryClient}
	cleaner.Workload = func(ctx context.Context, cluster types.NamespacedName) (client.Client, error) {
		theirs, err := connect.RESTConfig(ctx, management, cluster)
		if err != nil {
			return nil, err
		}
		theirs.UserAgent, theirs.QPS, theirs.Burst = restConfig.UserAgent, c.ClusterCacheClientQPS, c.ClusterCacheClientBurst
		return client.New(theirs, client.Options{Scheme: clientgoscheme.Scheme})
	}
	return cleaner, nil
}
