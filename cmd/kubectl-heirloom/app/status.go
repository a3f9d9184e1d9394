// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/status"
)

func newStatusCommand(f *cli.Factory) *cobra.Command {
	o := &fleetOptions{Factory: f, print: cli.NewPrintFlags()}
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "status [cluster/NAME... | NAME...]",
		Short: "Show how far roll-outs of NoExecute taints are, and what keeps them",
		Long: `Show how far the roll-out of NoExecute taints is in each Cluster, and why it does not go on. STATE is

  Done      All Nodes have the taints; the Cluster keeps its place for a while.
  Running   Nodes have their turn.
  Waiting   Other Clusters come first.
  HeldUp    A PodDisruptionBudget keeps a Pod on a Node.
  Halted    Pods have become unschedulable, or Nodes are no longer ready.
  Paused    A label of the Cluster or its ClusterClass pauses the roll-out.

ETA is the time until the last Node has its turn, if Pods leave at once. A Cluster without a roll-out is listed only if you name it.

The exit code is 0 in any state, and 2 if something could not be read. With --watch, the command prints a line whenever a state changes,
and ends with 0 when all roll-outs are done, or with 1 after the --timeout.`,
		Example: `  # All roll-outs
  kubectl heirloom status -A

  # In a pipeline: wait until the roll-out in Cluster prod is done
  kubectl heirloom status cluster/prod --watch --timeout=2h`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.follow(cmd.Context(), timeout, func(ctx context.Context) (*status.Status, error) { return o.status(ctx, args) })
		},
	}
	o.addFlags(command)
	command.Flags().Lookup("watch").Usage = "Print a line whenever a state changes, until all roll-outs are done."
	command.Flags().DurationVar(&timeout, "timeout", 0, "With --watch: the longest time to wait, such as 2h. Zero means no limit.")
	return command
}

// status reads the roll-outs in the Clusters that the arguments name, or in all Clusters.
func (o *fleetOptions) status(ctx context.Context, args []string) (*status.Status, error) {
	keys, err := o.keys(ctx, args)
	if err != nil {
		return nil, err
	}
	defer o.Progress("Reading the Nodes of all Clusters")()
	return status.Ask(ctx, status.Question{World: &o.world, Clusters: keys, Named: len(args) > 0})
}

// follow prints the status once or, with --watch, its changes until all roll-outs are done, or until the timeout.
func (o *fleetOptions) follow(ctx context.Context, timeout time.Duration, ask func(context.Context) (*status.Status, error)) error {
	switch {
	case timeout < 0:
		return errors.New("--timeout must not be negative")
	case timeout > 0 && !o.watch:
		return errors.New("--timeout needs --watch")
	}
	limited, errOut := ctx, o.ErrOut
	if timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	said := map[string]string{}
	err := o.run(limited, func(ctx context.Context) error {
		answer, err := ask(ctx)
		switch {
		case err != nil:
			return err
		case o.watch:
			err = o.changes(answer, said)
		default:
			err = o.show(answer, answer.Sentences()...)
		}
		switch {
		case err != nil:
			return err
		case answer.Unread():
			return errors.New("not everything could be read")
		case o.watch && answer.Over():
			return errOver
		}
		return nil
	})
	if err == nil && ctx.Err() == nil && limited.Err() != nil {
		_, _ = fmt.Fprintf(errOut, "error: not all roll-outs are done after %s\n", timeout)
		return cli.ErrFound
	}
	return err
}

// changes prints the roll-outs whose state is new since the last line about them.
func (o *fleetOptions) changes(answer *status.Status, said map[string]string) (err error) {
	changed := *answer
	changed.Rollouts = nil
	for _, r := range answer.Rollouts {
		if key, line := r.Namespace+"/"+r.Cluster, r.Line(); said[key] != line {
			said[key], changed.Rollouts = line, append(changed.Rollouts, r)
			if o.print.ForPeople() {
				_, err = fmt.Fprintln(o.Out, cli.Escape(line))
			}
		}
	}
	if len(changed.Rollouts) > 0 && !o.print.ForPeople() {
		err = o.print.Print(o.Out, o.Painter(o.Out), &changed)
	}
	return err
}
