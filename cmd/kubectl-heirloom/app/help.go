// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

const long = `Look at what Cluster API objects and their Nodes inherit: why a label, annotation, taint or field is there, why it is
not there, what a change would touch, and what is wrong.

Exit codes (tree ends with 0 even if something has drifted):
  0  the question is answered, and all is as it should be
  1  the question is answered, and something is not as it should be: a difference, a finding, a failed check
  2  the question could not be answered; standard error says why`

// usage is cobra's template without the flags that all commands have: those of "options".
const usage = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$root := .}}{{range $group := .Groups}}

{{.Title}}{{range $root.Commands}}{{if and (eq .GroupID $group.ID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if and .HasParent .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsagesWrapped 120 | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableSubCommands}}

Use "{{.CommandPath}} [command] --help" for more information about a command.{{end}}
Use "kubectl heirloom options" for the flags that all commands have.
`

// addCommands adds commands below a title.
func addCommands(root *cobra.Command, title string, commands ...*cobra.Command) {
	for _, command := range commands {
		if command.IsAvailableCommand() {
			if !root.ContainsGroup(title) {
				root.AddGroup(&cobra.Group{ID: title, Title: title})
			}
			command.GroupID = title
		}
		root.AddCommand(command)
	}
}

// setHelp makes a command's help fit on a screen.
func setHelp(root *cobra.Command) {
	root.SetUsageTemplate(usage)
	root.SetHelpCommandGroupID("Other:")
}

func newOptionsCommand(f *cli.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that all commands have",
		Args:  cli.NoArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(f.Out, command.Root().PersistentFlags().FlagUsagesWrapped(120))
			return err
		},
	}
}

func newVersionCommand(f *cli.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this plugin",
		Args:  cli.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(f.Out, version.String())
			return err
		},
	}
}
