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
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	ask "github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/release"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
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
stop it yourself, or give --stop.

With an argument it sets the label heirloom.dev/ignore=release, so that the object no longer inherits and the running Heirloom gives up
what it owns: with a Cluster, in all objects of that Cluster and on its Nodes; with a Machine, in the Machine and on its Node; with any
other object, in the object alone. It waits until that is done. When you remove the label, the object inherits again.

A second run changes nothing. If something cannot be released, the command does the rest and ends with an error.`,
		Example: `  # What would be given up?
  kubectl heirloom release --dry-run

  # Everything, before you uninstall Heirloom
  kubectl heirloom release --stop

  # One Cluster, while Heirloom goes on with the others
  kubectl heirloom release cluster/prod -n fleet`,
		ValidArgsFunction: f.Complete(cli.Takes{}),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := command.Flags()
	fs.BoolVar(&o.what.DryRun, "dry-run", false, "Write nothing; print what would be written.")
	fs.BoolVar(&o.what.KeepValues, "keep-values", false,
		"Keep labels, annotations, taints and fields, and give up only their ownership and tracking. "+
			"Nothing removes them automatically after that, even when they are no longer declared.")
	fs.BoolVarP(&o.yes, "yes", "y", false, "Do not ask.")
	fs.BoolVar(&o.what.Stop, "stop", false,
		"Stop Heirloom first: delete its webhook configurations, scale its Deployment to 0, and wait until nobody leads. "+
			"Without it, nothing is done while Heirloom runs.")
	return command
}

func (o *releaseOptions) run(ctx context.Context, args []string) error {
	named, err := o.validate(args)
	if err != nil {
		return err
	}
	management, err := o.Management()
	if err != nil {
		return err
	}
	object, err := o.object(management.RESTMapper(), named)
	if err != nil {
		return err
	}
	s, err := o.ReadSettings(ctx, management)
	if err != nil {
		return err
	}
	if s.Config.LeaderElectNamespace == "" {
		s.Config.LeaderElectNamespace = o.Settings.Namespace
	}
	if err := ask.Check(ctx, management, s, o.what.DryRun, object != nil); err != nil {
		return err
	}
	for _, note := range s.Notes {
		_, _ = fmt.Fprintln(o.ErrOut, "Note:", note)
	}
	d, err := o.Config.ToDiscoveryClient()
	if err != nil {
		return fmt.Errorf("making a client of the API server's discovery: %w", err)
	}
	d.Invalidate() // a kind that has been added since must not be forgotten
	if object != nil {
		return o.runObject(ctx, object, management, d, s)
	}
	if err := o.ask(func() string { return ask.Describe(s, o.what) }); err != nil {
		return err
	}
	releaser := release.Releaser{Options: o.what, Config: s.Config, Management: management, Discovery: d, Out: o.Out, Progress: o.ErrOut}
	releaser.Workload = func(ctx context.Context, cluster types.NamespacedName) (client.Client, error) {
		return o.Workload(ctx, management, cluster)
	}
	return releaser.Run(ctx)
}

// runObject releases one object.
func (o *releaseOptions) runObject(
	ctx context.Context, object *ask.Object, management client.Client, d discovery.DiscoveryInterface, s settings.Settings,
) (err error) {
	object.Client, object.Out, object.ErrOut = management, o.Out, o.ErrOut
	if object.Kinds, err = release.Kinds(d, s.Config.ProviderGroups); err != nil {
		return err
	}
	if s.Config.LeaderElect && s.Config.LeaderElectNamespace != "" {
		object.Lease = types.NamespacedName{Namespace: s.Config.LeaderElectNamespace, Name: s.Config.LeaderElectionID()}
	}
	if err := object.Validate(); err != nil {
		return err
	}
	if o.what.DryRun {
		return object.Preview(ctx)
	}
	if err := o.ask(object.Describe); err != nil {
		return err
	}
	defer o.Progress("Waiting until Heirloom has given up what it owns in %s", object)()
	return object.Release(ctx)
}

// validate refuses flags that do not go together, before anything is read. It returns what is named, if anything is.
func (o *releaseOptions) validate(args []string) (cli.Arguments, error) {
	switch {
	case len(args) == 0 && o.Config.Namespace != nil && *o.Config.Namespace != "":
		return cli.Arguments{}, errors.New("--namespace has no effect on a release of everything: name a Cluster or an object, " +
			"or say with --heirloom-namespace which Heirloom you mean")
	case o.WorkloadKubeconfig != "":
		return cli.Arguments{}, errors.New("--workload-kubeconfig leads to one workload cluster: a release of everything is about all, " +
			"and one object is the running Heirloom's work")
	case len(args) > 0 && o.what.Stop:
		return cli.Arguments{}, errors.New("--stop stops Heirloom for all objects, so it goes only with a release of everything")
	case len(args) > 0 && o.what.KeepValues:
		return cli.Arguments{}, errors.New("--keep-values goes only with a release of everything: for one object, the running Heirloom gives up what it owns")
	case len(args) == 0:
		return cli.Arguments{}, nil
	}
	named, err := cli.ParseArguments(args, cli.Takes{})
	if err == nil && len(named.Objects) != 1 {
		err = fmt.Errorf("%q: release takes one object at a time, as KIND/NAME", strings.Join(args, " "))
	}
	return named, err
}

// object finds out which object is meant, without reading it. Without arguments, it is nil.
func (o *releaseOptions) object(mapper meta.RESTMapper, named cli.Arguments) (*ask.Object, error) {
	request, err := named.Resolve(mapper)
	if err != nil || len(request.Objects) == 0 {
		return nil, err
	}
	namespace, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	object := request.Objects[0]
	return &ask.Object{GroupVersionKind: object.Kind.GroupVersionKind, NamespacedName: types.NamespacedName{Namespace: namespace, Name: object.Name}}, nil
}

// ask asks whether to go on, unless there is no need to.
func (o *releaseOptions) ask(description func() string) error {
	if o.yes || o.what.DryRun {
		return nil
	}
	return ask.Ask(o.In, o.ErrOut, o.terminal(), description())
}

// terminal reports whether you can answer.
func (o *releaseOptions) terminal() bool {
	file, isFile := o.In.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}
