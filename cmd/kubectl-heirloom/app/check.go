// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/check"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

func newCheckCommand(f *cli.Factory) *cobra.Command {
	print, wait := cli.NewPrintFlags().WithoutNames(), time.Duration(0)
	command := &cobra.Command{
		Use:   "check",
		Short: "Check whether Heirloom is installed and works",
		Long: `Check whether Heirloom is installed and works, and show how to fix problems.

Objects that you may not read and servers that do not answer count as unknown; the other checks go on. Nothing is changed. To see
whether the webhooks answer, the plugin creates Machines in a dry run; you need the right to create Machines.

The exit code is 0 if no check fails, 1 if a check fails, and 2 if nothing could be checked.`,
		Example: `  # After an installation: repeat until no check fails, for at most two minutes
  kubectl heirloom check --wait 2m`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < 0 {
				return fmt.Errorf("--wait=%s: must not be negative", wait)
			}
			if err := print.Validate(); err != nil {
				return err
			}
			return runCheck(cmd.Context(), f, print, wait)
		},
	}
	print.AddFlags(command)
	command.Flags().DurationVar(&wait, "wait", 0, "Repeat until no check fails, for at most this long (e.g. 2m). 0 means once.")
	return command
}

func runCheck(ctx context.Context, f *cli.Factory, print *cli.PrintFlags, wait time.Duration) error {
	done := f.Progress("Checking")
	once := func(ctx context.Context) (*check.Report, error) { return checkOnce(ctx, f) }
	report, err := check.Until(ctx, 5*time.Second, wait, once, func(report *check.Report, err error) {
		if err == nil {
			err = errors.New(strings.Join(report.Names(check.Failed), ", "))
		}
		_, _ = fmt.Fprintln(f.ErrOut, "Waiting for:", err)
	})
	done()
	if err == nil && print.ForPeople() {
		err = report.Write(f.Out, f.Painter(f.Out))
	} else if err == nil {
		err = print.Print(f.Out, f.Painter(f.Out), report)
	}
	switch {
	case err != nil:
		return err
	case !report.Answered():
		return errors.New("nothing could be checked: ask for the right to read the objects of Heirloom and Cluster API")
	case len(report.Names(check.Failed)) > 0:
		return cli.ErrFound
	}
	return nil
}

// checkOnce connects and runs all checks.
func checkOnce(ctx context.Context, f *cli.Factory) (*check.Report, error) {
	if mapper, err := f.Config.ToRESTMapper(); err == nil {
		meta.MaybeResetRESTMapper(mapper) // Cluster API may have been installed since
	}
	quiet := *f
	quiet.ErrOut = io.Discard // dry runs cause warnings, which are no news
	management, world, err := world(ctx, &quiet)
	if err != nil {
		return nil, err
	}
	discovery, err := f.Config.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	return (&check.Checker{
		World: world, Client: management, Kubernetes: discovery.ServerVersion, Namespace: f.Settings.Namespace, Plugin: version.String(),
	}).Run(ctx), nil
}
