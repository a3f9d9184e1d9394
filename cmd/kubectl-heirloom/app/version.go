// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

func newVersionCommand(f *cli.Factory) *cobra.Command {
	client := false
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this plugin, of the server and of Cluster API",
		Args:  cli.NoArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			_, _ = fmt.Fprintln(f.Out, "Client Version:", version.String())
			if client {
				return nil
			}
			f.Hurry()
			_, w, err := world(command.Context(), f)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintln(f.Out, "Server Version:", cmp.Or(w.Settings.Version, "unknown"))
			_, _ = fmt.Fprintln(f.Out, "Cluster API Version:", cmp.Or(w.Settings.ClusterAPI, "unknown"))
			for _, note := range w.Settings.Notes {
				_, _ = fmt.Fprintln(f.ErrOut, "Note:", note)
			}
			return nil
		},
	}
	command.Flags().BoolVar(&client, "client", false, "Print only the version of this plugin (no server required).")
	return command
}
