// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/report"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

func newReportCommand(f *cli.Factory) *cobra.Command {
	o := &fleetOptions{Factory: f, print: cli.NewPrintFlags("csv").WithoutNames()}
	var require []string
	command := &cobra.Command{
		Use:   "report [cluster/NAME... | NAME...]",
		Short: "Count missing and differing entries in each pool, and find Nodes without a key",
		Long: `Count, for each pool of a Cluster, such as a control plane or a MachineDeployment, its Nodes and all deviations: entries that are
missing or differ, and who has set them; objects that are paused or skipped; Nodes that wait for a NoExecute taint; Nodes without
an Always taint of their Machine. ADMISSION shows how new Nodes get inherited entries: by policy, by webhook, or only by the loop, a
moment after they have registered. CSV has all columns of the wide table.

The exit code is 2 if an object could not be read; with --require, it is 1 if a Node lacks a key.`,
		Example: `  # All Clusters, for a spreadsheet
  kubectl heirloom report -A -o csv > report.csv

  # Nodes without a cost center
  kubectl heirloom report -A --require label=cost-center`,
		RunE: func(cmd *cobra.Command, args []string) error {
			required, err := report.ParseRequired(require)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), func(ctx context.Context) error { return o.report(ctx, args, required) })
		},
	}
	o.addFlags(command)
	command.Flags().StringArrayVar(&require, "require", nil,
		"List the Nodes without this key: label=KEY, annotation=KEY or taint=KEY. Can be repeated.")
	return command
}

func (o *fleetOptions) report(ctx context.Context, args []string, required []report.Required) error {
	var mu sync.Mutex
	admission := map[types.NamespacedName]string{}
	trees, failed, err := o.trees(ctx, args, func(ctx context.Context, cluster types.NamespacedName, server client.Reader) {
		installed, config := webhook.ObjectName, o.world.Settings.Config
		if cluster == config.ManagementClusterKey {
			installed = config.WebhookConfiguration
		}
		way := report.Admission(ctx, server, installed)
		mu.Lock()
		defer mu.Unlock()
		admission[cluster] = way
	})
	if err != nil {
		return err
	}
	answer := report.New(trees, admission, required)
	answer.Notes = o.world.Settings.Notes
	if o.print.Format() == "csv" {
		err = answer.CSV(o.Out)
	} else {
		err = o.show(answer, answer.Sentences(o.print.Format() == "wide")...)
	}
	switch {
	case err != nil || failed != nil:
		return cmp.Or(err, failed)
	case answer.Unread():
		return errors.New("not everything could be read")
	case len(answer.Lacking) > 0:
		return cli.ErrFound
	}
	return nil
}
