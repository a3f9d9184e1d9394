// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/tree"
)

func newTreeCommand(f *cli.Factory) *cobra.Command {
	o := &fleetOptions{Factory: f, print: cli.NewPrintFlags()}
	var showAll, exitCode bool
	command := &cobra.Command{
		Use:   "tree [cluster/NAME... | NAME...]",
		Short: "Show a Cluster's chain of owners, with declarations and missing entries",
		Long: `Show a Cluster's chain of owners from its ClusterClass down to its Nodes. Below each object, "+" marks its declarations for others,
"!" an entry that is missing or differs, and "~" a taint that waits for its turn; if Heirloom skips the object, the tree says why.

Equal Machines of an owner share a line, and their infrastructure and bootstrap objects appear only if an entry is missing or differs.
Without a name, you get all Clusters of the namespace. If a workload cluster does not answer, its tree ends at the Machines.`,
		Example: `  # The Cluster prod in the namespace of the current context
  kubectl heirloom tree cluster/prod

  # All Clusters, each object on a line of its own
  kubectl heirloom tree -A --show-all

  # In a pipeline: check that all declarations have arrived
  kubectl heirloom tree cluster/prod --exit-code`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), func(ctx context.Context) error {
				trees, failed, err := o.trees(ctx, args, nil)
				if err != nil {
					return err
				}
				forest := tree.New(trees)
				forest.Notes, forest.ShowAll = o.world.Settings.Notes, showAll
				if err := o.show(forest); err != nil {
					return err
				}
				switch {
				case !exitCode || failed != nil:
					return failed
				case forest.Has(tree.Unknown):
					return errors.New("some objects could not be read, so the tree may be incomplete")
				case forest.Has(tree.Drifted):
					return cli.ErrFound
				}
				return nil
			})
		},
	}
	o.addFlags(command)
	command.Flags().BoolVar(&showAll, "show-all", false, "Show each object on a line of its own, with infrastructure and bootstrap objects.")
	command.Flags().BoolVar(&exitCode, "exit-code", false, "Exit with 1 if an entry is missing or differs, and with 2 if an object cannot be read.")
	return command
}
