// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/lint"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
)

const lintLong = `Find mistakes in manifests of Cluster API, without an API server: taints that the API server would reject, labels that never
reach a Node and the flag that would propagate them, topologies that replace declarations of their ClusterClass, and more.

All files are checked together, with the settings of your server (--values, --server-flags): pass a Cluster with its ClusterClass.
Objects without a namespace get the namespace of --namespace or, without this flag, the namespace that all other objects name. Objects
of other projects than Cluster API are skipped.

The exit code is 0 without a finding of the severity of --fail-on or above, 1 with such a finding, and 2 if a file could not be read.`

func newLintCommand(f *cli.Factory) *cobra.Command {
	print, failOn := cli.NewPrintFlags("text", "sarif").WithoutNames(), ""
	files := genericclioptions.FileNameFlags{Filenames: &[]string{}, Kustomize: new(""), Recursive: new(false)}
	files.Usage = "File or directory with the manifests; - is the standard input. You can also name them as arguments."
	command := &cobra.Command{
		Use:   "lint (-f FILE | -k DIRECTORY | FILE...)",
		Short: "Find mistakes in manifests, without an API server",
		Long:  lintLong,
		Example: `  # The manifests of a directory and its subdirectories, with the settings of your server
  kubectl heirloom lint -f clusters/ -R --values heirloom-values.yaml

  # Manifests that clusterctl generates, for code scanning
  clusterctl generate cluster prod | kubectl heirloom lint -f - -o sarif > heirloom.sarif`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := print.Validate(); err != nil || !slices.Contains([]string{"error", "warning", "never"}, failOn) {
				return cmp.Or(err, fmt.Errorf("--fail-on=%q: must be error, warning or never", failOn))
			}
			from := files.ToOptions()
			from.Filenames = slices.Concat(from.Filenames, args)
			set, readErr := manifest.Read(f.In, from)
			read, err := f.Settings.Offline()
			if err != nil || readErr != nil && len(set.Objects)+len(set.Templates) == 0 {
				return cmp.Or(err, readErr)
			}
			if set.Documents == 0 {
				return errors.New("the files contain no objects")
			}
			report, err := lint.Lint(set, lint.Settings{Policy: read.Config.Rules, Origin: read.Origin, Namespace: *f.Config.Namespace})
			if err == nil {
				err = printLint(f, print, report)
			}
			if err != nil || readErr != nil {
				return cmp.Or(err, readErr)
			}
			if report.Count(lint.Error) > 0 && failOn != "never" || report.Count(lint.Warning) > 0 && failOn == "warning" {
				return cli.ErrFound
			}
			return nil
		},
	}
	files.AddFlags(command.Flags())
	print.AddFlags(command)
	command.Flags().Lookup("output").Usage += " text (a line for each finding) is the default."
	command.Flags().StringVar(&failOn, "fail-on", "warning", "Lowest severity that makes the exit code 1: error, warning or never.")
	return command
}

func printLint(f *cli.Factory, print *cli.PrintFlags, report *lint.Report) error {
	switch print.Format() {
	case "", "text":
		_, err := fmt.Fprint(f.Out, report.Text(f.Painter(f.Out)))
		_, summaryErr := fmt.Fprintln(f.ErrOut, report.Summary()) // standard output has only findings
		return cmp.Or(err, summaryErr)
	case "sarif":
		return report.SARIF(f.Out)
	}
	return print.Print(f.Out, f.Painter(f.Out), report)
}
