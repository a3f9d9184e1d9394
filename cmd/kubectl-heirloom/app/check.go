// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/check"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

// checkAgain is how long --wait waits between two answers.
const checkAgain = 5 * time.Second

type checkOptions struct {
	*cli.Factory
	print *cli.PrintFlags
	wait  time.Duration
}

func newCheckCommand(f *cli.Factory) *cobra.Command {
	o := &checkOptions{Factory: f, print: cli.NewPrintFlags().WithoutNames()}
	command := &cobra.Command{
		Use:   "check",
		Short: "Find out whether Heirloom is installed and works",
		Long: `Find out whether Heirloom is installed and works, and what to do if not.

The checks are independent of each other: what you have no right to read, or what does not answer, is unknown and stops nothing else.
They change nothing. To see whether the webhooks answer, they create Machines in a dry run, for which you need that right.

The exit code is 0 if nothing has failed, 1 if something has, and 2 if nothing could be found out. Warnings and what is unknown do
not count.`,
		Example: `  # Once
  kubectl heirloom check

  # After an installation: until nothing fails any more, for two minutes at most
  kubectl heirloom check --wait 2m

  # For a program
  kubectl heirloom check -o json`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.Flag("output").Value.String())
		},
	}
	o.print.AddFlags(command)
	command.Flags().DurationVar(&o.wait, "wait", 0, "Check again until nothing has failed, for this long at most, such as 2m. 0 checks once.")
	return command
}

func (o *checkOptions) validate() error {
	if o.wait < 0 {
		return fmt.Errorf("--wait=%s: must not be negative", o.wait)
	}
	return o.print.Validate()
}

func (o *checkOptions) run(ctx context.Context, format string) error {
	done := o.Progress("Checking")
	report, err := o.once(ctx)
	if o.wait > 0 {
		report, err = check.Until(ctx, checkAgain, o.wait, report, err, o.once, o.again)
	}
	done()
	if err != nil {
		return err
	}
	if format == "" {
		err = report.Write(o.Out, o.Painter(o.Out))
	} else {
		err = o.print.Print(o.Out, o.Painter(o.Out), report)
	}
	switch {
	case err != nil:
		return err
	case !report.Answered():
		return errors.New("nothing could be found out: ask for the right to read Heirloom's and Cluster API's objects")
	case report.Has(check.Failed):
		return cli.ErrFound
	}
	return nil
}

// again says on standard error what --wait waits for.
func (o *checkOptions) again(report *check.Report, err error) {
	if err != nil {
		_, _ = fmt.Fprintf(o.ErrOut, "Waiting: %v\n", err)
		return
	}
	var names []string
	for _, one := range report.Checks {
		if one.Status == check.Failed {
			names = append(names, one.Name)
		}
	}
	_, _ = fmt.Fprintf(o.ErrOut, "Waiting for: %s\n", strings.Join(names, ", "))
}

// once connects and runs all checks.
func (o *checkOptions) once(ctx context.Context) (*check.Report, error) {
	// What is discovered is kept, and Cluster API may have been installed since.
	if mapper, err := o.Config.ToRESTMapper(); err == nil {
		meta.MaybeResetRESTMapper(mapper)
	}
	management, err := o.Management()
	if err != nil {
		return nil, err
	}
	discovery, err := o.Config.ToDiscoveryClient()
	if err != nil {
		return nil, fmt.Errorf("making a client of the API server's discovery: %w", err)
	}
	// Dry runs provoke warnings, which are no news.
	quiet := rest.CopyConfig(management.REST)
	quiet.WarningHandler = rest.NoWarnings{}
	live, err := client.New(quiet, client.Options{Scheme: management.Scheme(), Mapper: management.RESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	checker := &check.Checker{
		Client: live, Schemas: management.Schemas, Kubernetes: discovery.ServerVersion, Namespace: o.Settings.Namespace,
		Settings: func(ctx context.Context) (settings.Settings, error) { return o.ReadSettings(ctx, management) },
		Workload: func(ctx context.Context, cluster types.NamespacedName) (client.Client, error) {
			return o.Workload(ctx, management, cluster)
		},
		Served: check.Served, Plugin: version.String(), Now: time.Now,
	}
	return checker.Run(ctx), nil
}
