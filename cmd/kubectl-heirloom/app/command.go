// SPDX-License-Identifier: Apache-2.0

// Package app wires the kubectl plugin: commands, flags and output.
package app

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

const long = `Inspect inheritance in Cluster API objects and their Nodes: why a label, annotation, taint or field is there, why it is
missing, which objects a change would touch, and which declarations are wrong.

Exit codes (tree ends with 1 only with --exit-code):
  0  no difference, no finding, no failed check
  1  a difference, a finding or a failed check
  2  no answer; standard error says why`

// NewCommand returns the plugin's root command. kubectl runs it as "kubectl heirloom".
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	command := &cobra.Command{
		Use:               "kubectl-heirloom",
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl heirloom"},
		Short:             "Inspect inheritance in Cluster API objects and their Nodes",
		Long:              long,
		Version:           version.String(),
		SilenceErrors:     true, // main prints errors
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	command.SetIn(streams.In)
	command.SetErr(streams.ErrOut)
	f := &cli.Factory{IOStreams: streams, Config: genericclioptions.NewConfigFlags(true)}
	command.PersistentPreRunE = func(*cobra.Command, []string) error { return f.Validate() }
	fs := command.PersistentFlags()
	f.Config.AddFlags(fs)
	f.Settings.AddFlags(fs)
	fs.StringVar(&f.ManagementCluster, "management-cluster", "",
		"<namespace>/<name> of the Cluster whose Nodes live in the management cluster's own API server, instead of the server's setting.")
	fs.StringVar(&f.WorkloadKubeconfig, "workload-kubeconfig", "",
		"Kubeconfig of the workload cluster, instead of the kubeconfig in the Cluster's Secret.")
	fs.StringVar(&f.Color, "color", "auto", "When to use colours: auto, always or never. auto means on a terminal, unless NO_COLOR is set.")
	fs.IntVarP(&f.Verbosity, "v", "v", 0, "Number for the log level verbosity. 6 logs each request.")
	groups := templates.CommandGroups{
		{Message: "Look:", Commands: []*cobra.Command{newExplainCommand(f), newTreeCommand(f), newReportCommand(f), newCheckCommand(f)}},
		{Message: "Before you change something:", Commands: []*cobra.Command{newLintCommand(f), newDiffCommand(f), newUsesCommand(f), newAdoptCommand(f), newModeCommand(f)}},
		{Message: "Before you uninstall:", Commands: []*cobra.Command{newCleanupCommand(f)}},
	}
	groups.Add(command)
	former := newCleanupCommand(f)
	former.Use, former.Deprecated = "release", "use cleanup"
	command.AddCommand(newOptionsCommand(f), newVersionCommand(f), former)
	for _, one := range command.Commands() {
		one.DisableFlagsInUseLine = true // the help says [options]
	}
	complete(command, f)
	templates.ActsAsRootCommand(command, nil, groups...) // kubectl's help
	command.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w: see \"%s --help\"", err, command.CommandPath())
	})
	return command
}

func newOptionsCommand(f *cli.Factory) *cobra.Command {
	command := &cobra.Command{
		Use:   "options",
		Short: "Print the list of flags inherited by all commands",
		Args:  cli.NoArguments,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Usage() },
	}
	templates.UseOptionsTemplates(command)
	command.SetOut(f.Out)
	return command
}

// complete completes the values of the flags that all commands have.
func complete(root *cobra.Command, f *cli.Factory) {
	for _, flag := range []string{"namespace", "context", "cluster", "user", "management-cluster"} {
		_ = root.RegisterFlagCompletionFunc(flag, f.CompleteFlag(flag))
	}
	_ = root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp))
}
