// SPDX-License-Identifier: Apache-2.0

// Package app wires the kubectl plugin: commands, flags and output.
package app

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

// NewCommand returns the plugin's root command. kubectl runs it as "kubectl heirloom".
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	command := &cobra.Command{
		Use:               "kubectl-heirloom",
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl heirloom"},
		Short:             "Look at what Cluster API objects and their Nodes inherit",
		Long:              long,
		Version:           version.String(),
		SilenceUsage:      true,
		SilenceErrors:     true, // main prints them
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	command.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w: see \"%s --help\"", err, command.CommandPath())
	})
	command.SetIn(streams.In)
	command.SetOut(streams.Out)
	command.SetErr(streams.ErrOut)
	f := &cli.Factory{IOStreams: streams, Config: genericclioptions.NewConfigFlags(true)}
	command.PersistentPreRunE = func(*cobra.Command, []string) error { return f.Validate() }
	fs := command.PersistentFlags()
	f.Config.AddFlags(fs)
	f.Settings.AddFlags(fs)
	fs.StringVar(&f.ManagementCluster, "management-cluster", "",
		"<namespace>/<name> of the Cluster whose Nodes live in the management cluster's own API server, instead of what the server is told.")
	fs.StringVar(&f.WorkloadKubeconfig, "workload-kubeconfig", "",
		"Kubeconfig for the workload cluster, instead of the one that Cluster API keeps for the Cluster.")
	fs.StringVar(&f.Color, "color", "auto", "When to use colours: auto, always or never. auto means on a terminal, unless NO_COLOR is set.")
	fs.IntVarP(&f.Verbosity, "v", "v", 0, "Log to standard error what the plugin does, up to this level. 6 shows each request.")
	addCommands(command, "Look:", newExplainCommand(f), newTreeCommand(f), newCheckCommand(f))
	addCommands(command, "Before you change something:", newLintCommand(f), newDiffCommand(f))
	addCommands(command, "Before you uninstall:", newReleaseCommand(f))
	addCommands(command, "Other:", newOptionsCommand(f), newVersionCommand(f))
	complete(command, f)
	setHelp(command)
	return command
}
