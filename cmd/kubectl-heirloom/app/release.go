// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	ask "github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/release"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/target"
	"github.com/heirloom-dev/heirloom/pkg/release"
)

type releaseOptions struct {
	*cli.Factory
	what release.Options
	yes  bool
}

func newReleaseCommand(f *cli.Factory) *cobra.Command {
	o := &releaseOptions{Factory: f}
	command := &cobra.Command{
		Use:   "release [TYPE/NAME | TYPE NAME]",
		Short: "Give up what Heirloom owns: everything, or that of one Cluster or object",
		Long: `Give up what Heirloom owns: in objects of Cluster API and of its providers, on Nodes, and in workload clusters.
It takes the settings from the running server. It says what it is about to do and asks, unless you give --yes.

Without an argument it gives up everything, so that nothing is left when you uninstall Heirloom. Heirloom must not run meanwhile:
stop it yourself, or give --delete-webhook-configurations and --take-lease.

With a Cluster it gives up what Heirloom owns in all objects of that Cluster and on its Nodes; with a Machine, that of the Machine and
its Node; with any other object, that of the object alone. Heirloom may run, but then you must first opt the object or its Cluster
out with the label heirloom.dev/ignore, because otherwise it would inherit again at once.

A second run changes nothing. If something cannot be released, the command does the rest and ends with an error.`,
		Example: `  # What would be given up?
  kubectl heirloom release --dry-run

  # Everything, before you uninstall Heirloom
  kubectl heirloom release --delete-webhook-configurations --take-lease

  # One Cluster, while Heirloom goes on with the others
  kubectl label cluster prod -n fleet heirloom.dev/ignore=
  kubectl heirloom release cluster/prod -n fleet

  # One object; what it has stays
  kubectl heirloom release machinedeployment/md-0 -n fleet --keep-values`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: f.CompleteObjects(),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := command.Flags()
	fs.BoolVar(&o.what.DryRun, "dry-run", false, "Write nothing; print what would be written.")
	fs.BoolVar(&o.what.KeepValues, "keep-values", false,
		"Keep labels, annotations, taints and fields, and give up only their ownership and tracking. "+
			"Nothing removes them automatically after that, even when they are no longer declared.")
	fs.BoolVarP(&o.yes, "yes", "y", false, "Do not ask.")
	fs.BoolVar(&o.what.DeleteWebhookConfigurations, "delete-webhook-configurations", false,
		"Delete Heirloom's webhook configurations first. Without it, nothing is done while they are there.")
	fs.BoolVar(&o.what.TakeLease, "take-lease", false,
		"Take the Lease of Heirloom's leader first, and wait until the leader has stopped; one minute after the end, another one may lead. "+
			"Without it, nothing is done while there is a leader.")
	return command
}

func (o *releaseOptions) run(ctx context.Context, args []string) error {
	if err := o.validate(args); err != nil {
		return err
	}
	management, err := o.Management()
	if err != nil {
		return err
	}
	if o.what.Only, err = o.only(management.RESTMapper(), args); err != nil {
		return err
	}
	s, err := o.ReadSettings(ctx, management)
	if err != nil {
		return err
	}
	if s.Config.LeaderElectNamespace == "" {
		s.Config.LeaderElectNamespace = o.Settings.Namespace
	}
	if err := ask.Check(ctx, management, s, o.what); err != nil {
		return err
	}
	for _, note := range s.Notes {
		_, _ = fmt.Fprintln(o.ErrOut, "Note:", note)
	}
	if !o.yes && !o.what.DryRun {
		if err := ask.Ask(o.In, o.ErrOut, o.terminal(), ask.Describe(s, o.what)); err != nil {
			return err
		}
	}
	discovery, err := o.Config.ToDiscoveryClient()
	if err != nil {
		return fmt.Errorf("making a client of the API server's discovery: %w", err)
	}
	discovery.Invalidate() // a kind that has been added since must not be forgotten
	releaser := release.New(s.Config, o.what, management, discovery)
	releaser.Workload = func(ctx context.Context, cluster types.NamespacedName) (client.Client, error) {
		return o.Workload(ctx, management, cluster)
	}
	releaser.Out, releaser.Progress = o.Out, o.ErrOut
	return releaser.Run(ctx)
}

// validate refuses flags that do not go together, before anything is read.
func (o *releaseOptions) validate(args []string) error {
	switch {
	case len(args) == 0 && o.Config.Namespace != nil && *o.Config.Namespace != "":
		return errors.New("--namespace has no effect on a release of everything: name a Cluster or an object, " +
			"or say with --heirloom-namespace which Heirloom you mean")
	case len(args) == 0 && o.WorkloadKubeconfig != "":
		return errors.New("--workload-kubeconfig leads to one workload cluster: name its Cluster")
	case len(args) > 0 && (o.what.DeleteWebhookConfigurations || o.what.TakeLease):
		return errors.New("--delete-webhook-configurations and --take-lease stop Heirloom for all objects, so they go only with a release of everything")
	}
	return nil
}

// only finds out which object is meant, without reading it. Without arguments, it is nil.
func (o *releaseOptions) only(mapper meta.RESTMapper, args []string) (*release.Only, error) {
	if len(args) == 0 {
		return nil, nil
	}
	request, err := target.Parse(mapper, args, false)
	if err != nil {
		return nil, err
	}
	if len(request.Objects) != 1 || request.Key != "" {
		return nil, fmt.Errorf("%q: release takes one object at a time, as <kind>/<name>", strings.Join(args, " "))
	}
	namespace, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	object := request.Objects[0]
	return &release.Only{
		GroupVersionKind: object.Kind.GroupVersionKind, NamespacedName: types.NamespacedName{Namespace: namespace, Name: object.Name},
	}, nil
}

// terminal reports whether you can answer.
func (o *releaseOptions) terminal() bool {
	file, isFile := o.In.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}
