// SPDX-License-Identifier: Apache-2.0

// Package app is the kubectl plugin: its commands, what they read from the API server, and how they print it.
// What they say is computed in package origin.
package app

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/heirloom-dev/heirloom/pkg/version"
)

// NewCommand returns the command kubectl heirloom.
func NewCommand() *cobra.Command {
	command := &cobra.Command{
		Use:               "kubectl-heirloom",
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl heirloom"},
		Short:             "Look at what Cluster API objects and their Nodes inherit",
		Version:           version.String(),
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	config := genericclioptions.NewConfigFlags(true)
	config.AddFlags(command.PersistentFlags())
	command.AddCommand(newExplainCommand(config), newVersionCommand())
	return command
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this plugin",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.String())
			return err
		},
	}
}
