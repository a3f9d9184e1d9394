// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/mode"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

func newModeCommand(f *cli.Factory) *cobra.Command {
	command := &cobra.Command{
		Use: "mode", Short: "List and set the modes of Clusters: whether Heirloom writes there, or only observes", SuggestionsMinimumDistance: 2,
		RunE: func(command *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.Help()
			}
			meant := cmp.Or(strings.Join(command.SuggestionsFor(args[0]), " or "), "list or set")
			return fmt.Errorf("unknown command %q for %q: did you mean %s?", args[0], command.CommandPath(), meant)
		},
	}
	o := &fleetOptions{Factory: f, print: cli.NewPrintFlags().WithoutNames()}
	list := &cobra.Command{
		Use:   "list [cluster/NAME... | NAME...]",
		Short: "List the modes of Clusters, with their origin: the Cluster, its ClusterClass or the installation",
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command.Context(), func(ctx context.Context) error {
				keys, err := o.keys(ctx, args)
				if err != nil {
					return err
				}
				answer, err := mode.List(ctx, o.world, keys)
				return cmp.Or(o.show(answer), err)
			})
		},
	}
	o.addFlags(list)
	command.AddCommand(list, newModeSetCommand(o))
	return command
}

func newModeSetCommand(o *fleetOptions) *cobra.Command {
	unset := false
	command := &cobra.Command{
		Use:   "set (cluster/NAME | NAME) (enforce | observe | --unset)",
		Short: "Set the mode of a Cluster, with its label " + inherit.ModeLabel,
		Example: `  # Let Heirloom write in the Cluster prod
  kubectl heirloom mode set cluster/prod enforce

  # Return to the mode of its ClusterClass or of the installation
  kubectl heirloom mode set cluster/prod --unset`,
		ValidArgsFunction: o.Complete(cli.Takes{Clusters: true}),
		RunE: func(command *cobra.Command, args []string) error {
			wanted, last := "", len(args)-1
			if !unset && last > 0 {
				args, wanted = args[:last], args[last]
			}
			named, err := cli.ParseArguments(args, cli.Takes{Clusters: true})
			if err != nil {
				return err
			}
			if wanted != "" && !mode.Valid(wanted) {
				return fmt.Errorf("mode %q: must be %s or %s", wanted, inherit.Enforce, inherit.Observe)
			}
			if len(named.Objects) != 1 || !unset && wanted == "" {
				return errors.New("specify a Cluster, as cluster/NAME or NAME, and then enforce, observe or --unset")
			}
			strategy, err := o.DryRun(command)
			if err != nil {
				return err
			}
			return o.setMode(command.Context(), args, wanted, strategy)
		},
	}
	cmdutil.AddDryRunFlag(command)
	command.Flags().BoolVar(&unset, "unset", false, "Remove the label.")
	return command
}

// setMode labels the Cluster, and says which mode it has then. It refuses a mode that would have no effect.
func (o *fleetOptions) setMode(ctx context.Context, args []string, wanted string, strategy cmdutil.DryRunStrategy) error {
	keys, err := o.keys(ctx, args)
	if err != nil {
		return err
	}
	after, err := mode.Set(ctx, o.world, o.management, keys[0], wanted, strategy)
	if err != nil {
		return err
	}
	done := map[bool]string{true: " (dry run)"}[strategy != cmdutil.DryRunNone]
	_, err = fmt.Fprintf(o.Out, "Cluster %s: %s, by the %s%s\n", keys[0], after.Mode, after.From, done)
	return err
}
