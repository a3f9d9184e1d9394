// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/discovery"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ask "github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cleanup"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/cleanup"
)

type cleanupOptions struct {
	*cli.Factory
	what cleanup.Options
	yes  bool
	// writer is the client for writes: of dry runs with --dry-run=server.
	writer func(client.Client) client.Client
}

func newCleanupCommand(f *cli.Factory) *cobra.Command {
	o := &cleanupOptions{Factory: f, writer: func(c client.Client) client.Client { return c }}
	command := &cobra.Command{
		Use:   "cleanup [KIND/NAME | KIND NAME]",
		Short: "Give up everything that Heirloom owns, or only in one Cluster or object",
		Long: `Give up everything that Heirloom owns in objects of Cluster API and its providers, on Nodes and in workload clusters. The command
describes its plan and asks for confirmation, unless you use --yes.

Without an argument, the command gives up everything, before you uninstall Heirloom. Stop Heirloom first, or use --stop. With an
argument, the command sets the label heirloom.dev/ignore=cleanup and waits until the running Heirloom has cleaned up the object: a
Cluster with all its objects and Nodes, a Machine with its Node. Once you remove the label, the object inherits again.

A second run changes nothing. If something cannot be cleaned up, the command does the rest and ends with an error.`,
		Example: `  # List everything that would be cleaned up
  kubectl heirloom cleanup --dry-run=client

  # Clean up everything before you uninstall Heirloom
  kubectl heirloom cleanup --stop

  # Clean up one Cluster; Heirloom continues with the others
  kubectl heirloom cleanup cluster/prod -n fleet`,
		ValidArgsFunction: f.Complete(cli.Takes{}),
		RunE: func(cmd *cobra.Command, args []string) error {
			strategy, err := f.DryRun(cmd)
			if err != nil {
				return err
			}
			if o.what.DryRun, o.what.ServerSide = strategy != cmdutil.DryRunNone, strategy == cmdutil.DryRunServer; o.what.ServerSide {
				o.writer = client.NewDryRunClient
			}
			return o.run(cmd.Context(), args)
		},
	}
	fs := command.Flags()
	cmdutil.AddDryRunFlag(command)
	fs.BoolVar(&o.what.KeepValues, "keep-values", false,
		"Keep labels, annotations, taints and fields, and give up only their ownership and tracking. "+
			"Nothing removes them automatically after that, even when they are no longer declared.")
	fs.BoolVarP(&o.yes, "yes", "y", false, "Do not ask for confirmation.")
	fs.BoolVar(&o.what.Stop, "stop", false,
		"Stop Heirloom first: delete its webhook configurations, scale its Deployment to 0, and wait until no replica leads. "+
			"Without this flag, the command refuses to run while Heirloom runs.")
	return command
}

func (o *cleanupOptions) run(ctx context.Context, args []string) error {
	named, err := o.validate(args)
	if err != nil {
		return err
	}
	management, w, err := world(ctx, o.Factory)
	if err != nil {
		return err
	}
	request, err := named.Resolve(management.RESTMapper())
	if err != nil {
		return err
	}
	s := w.Settings
	if err := ask.Check(ctx, management, &s, o.Settings.Namespace, o.what.DryRun, len(args) > 0); err != nil {
		return err
	}
	for _, note := range s.Notes {
		_, _ = fmt.Fprintln(o.ErrOut, "Note:", note)
	}
	d, err := o.Config.ToDiscoveryClient()
	if err != nil {
		return fmt.Errorf("making a client of the API server's discovery: %w", err)
	}
	d.Invalidate() // the cache of discovery may lack a kind that was added since
	if len(args) > 0 && len(request.Objects) != 1 {
		return fmt.Errorf("%q: cleanup takes one object at a time, as KIND/NAME", strings.Join(args, " "))
	} else if len(args) > 0 {
		w.Settings = s
		return o.object(ctx, request.Objects[0], management, d, w)
	}
	if err := o.ask(ask.Describe(s, o.what)); err != nil {
		return err
	}
	cleaner := cleanup.Cleaner{Options: o.what, Config: s.Config, Management: o.writer(management), Discovery: d, Out: o.Out, Progress: o.ErrOut}
	cleaner.Workload = o.workload(management)
	return cleaner.Run(ctx)
}

// workload returns a function that connects to workload clusters.
func (o *cleanupOptions) workload(management *cli.Management) func(context.Context, types.NamespacedName) (client.Client, error) {
	return func(ctx context.Context, cluster types.NamespacedName) (client.Client, error) {
		server, err := o.Workload(ctx, management, cluster)
		if err != nil {
			return nil, err
		}
		return o.writer(server), nil
	}
}

// object cleans up a single object.
func (o *cleanupOptions) object(
	ctx context.Context, named cli.Object, management *cli.Management, d discovery.DiscoveryInterface, w compare.World,
) error {
	namespace, err := o.Namespace()
	if err != nil {
		return err
	}
	object := &ask.Object{
		GroupVersionKind: named.Kind.GroupVersionKind, NamespacedName: types.NamespacedName{Namespace: namespace, Name: named.Name}, Client: o.writer(management), Out: o.Out,
		World: w, Workload: o.workload(management),
	}
	s := w.Settings
	if object.Kinds, err = cleanup.Kinds(d, s.Config.ProviderGroups); err != nil {
		return err
	}
	if s.Config.LeaderElect && s.Config.LeaderElectNamespace != "" {
		object.Lease = types.NamespacedName{Namespace: s.Config.LeaderElectNamespace, Name: s.Config.LeaderElectionID()}
	}
	if err := object.Validate(); err != nil {
		return err
	}
	if o.what.DryRun {
		return object.Preview(ctx, o.what.Mode)
	}
	if err := o.ask(object.Describe()); err != nil {
		return err
	}
	defer o.Progress("Waiting for Heirloom to clean up %s", object)()
	return object.CleanUp(ctx)
}

// validate refuses flags that cannot be combined, before anything is read. It returns the object that the arguments name, if any.
func (o *cleanupOptions) validate(args []string) (named cli.Arguments, err error) {
	switch {
	case len(args) == 0 && *o.Config.Namespace != "":
		return named, errors.New("--namespace has no effect on a cleanup of everything: name a Cluster or an object, " +
			"or select a Heirloom with --heirloom-namespace")
	case o.WorkloadKubeconfig != "":
		return named, errors.New("--workload-kubeconfig is not supported: a cleanup of everything covers all workload clusters, " +
			"and the running Heirloom cleans up single objects")
	case len(args) > 0 && (o.what.Stop || o.what.KeepValues):
		return named, errors.New("--stop and --keep-values work only with a cleanup of everything: the running Heirloom cleans up single objects")
	case len(args) == 0:
		return named, nil
	}
	return cli.ParseArguments(args, cli.Takes{})
}

// ask asks for confirmation, unless the flags make it unnecessary.
func (o *cleanupOptions) ask(description string) error {
	if o.yes || o.what.DryRun {
		return nil
	}
	return ask.Ask(o.In, o.ErrOut, printers.IsTerminal(o.In), description)
}
