// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/lint"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// The formats that lint has beside those of all commands.
const (
	formatText  = "text"
	formatSARIF = "sarif"
)

type lintOptions struct {
	*cli.Factory
	files  genericclioptions.FileNameFlags
	print  *cli.PrintFlags
	failOn string
}

func newLintCommand(f *cli.Factory) *cobra.Command {
	o := &lintOptions{Factory: f, print: cli.NewPrintFlags(formatText, formatSARIF).WithoutNames(), files: genericclioptions.FileNameFlags{
		Filenames: &[]string{}, Kustomize: new(""), Recursive: new(false),
	}}
	o.files.Usage = "File or directory with the manifests; - is the standard input. You can also name them as arguments."
	command := &cobra.Command{
		Use:   "lint (-f FILE | -k DIRECTORY | FILE...)",
		Short: "Find what is wrong with manifests, without an API server",
		Long: `Find what is wrong with manifests of Cluster API, without an API server: taints that will be refused, labels that will
never reach a Node and the flag that would let them, topologies that replace what their ClusterClass declares, and more.

All files are judged together, so give a Cluster with its ClusterClass. Objects without a namespace are in that of --namespace or, without
it, in the one that all others name. Every answer depends on the settings of your server: give them
with --values or --server-flags; without them, lint uses the defaults. Documents that are not of Cluster API are skipped.

The exit code is 0 if nothing was found that --fail-on names, 1 if something was, and 2 if a file could not be read.`,
		Example: `  # The manifests of a directory and of those below it
  kubectl heirloom lint -f clusters/ -R

  # By the settings of your server
  kubectl heirloom lint -f clusters/ --values heirloom-values.yaml

  # What kustomize renders
  kubectl heirloom lint -k clusters/prod

  # What clusterctl generates
  clusterctl generate cluster prod | kubectl heirloom lint -f -

  # For code scanning
  kubectl heirloom lint -f clusters/ -o sarif > heirloom.sarif`,
		RunE: o.run,
	}
	o.files.AddFlags(command.Flags())
	o.print.AddFlags(command)
	if output := command.Flags().Lookup("output"); output != nil {
		output.Usage += " text (a line for each finding) is the default."
	}
	command.Flags().StringVar(&o.failOn, "fail-on", string(lint.Warning), "The least severity that makes the exit code 1: error, warning or never.")
	return command
}

func (o *lintOptions) run(cmd *cobra.Command, args []string) error {
	format := cmd.Flags().Lookup("output").Value.String()
	if err := o.validate(format); err != nil {
		return err
	}
	read, err := o.Settings.Offline()
	if err != nil {
		return err
	}
	policy := read.Policy()
	if policy.ClusterAPITaints == inherit.PropagationUnknown && !read.Config.DetectTaintPropagation {
		policy.ClusterAPITaints = read.Config.Rules.ClusterAPITaints // it was given
	}
	files := o.files.ToOptions()
	files.Filenames = slices.Concat(files.Filenames, args)
	set, readErr := manifest.Read(o.In, files)
	if readErr != nil && len(set.Objects)+len(set.Notes) == 0 {
		return readErr
	}
	report, err := lint.Lint(set, lint.Settings{Policy: policy, Known: read.Known, Origin: read.Origin, Namespace: *o.Config.Namespace})
	if err != nil {
		return err
	}
	if err := o.show(format, report); err != nil {
		return err
	}
	switch {
	case readErr != nil:
		return readErr
	case fails(report.Worst(), o.failOn):
		return cli.ErrFound
	}
	return nil
}

func (o *lintOptions) validate(format string) error {
	if !slices.Contains([]string{string(lint.Error), string(lint.Warning), "never"}, o.failOn) {
		return fmt.Errorf("--fail-on=%q: must be error, warning or never", o.failOn)
	}
	switch format {
	case formatText, formatSARIF:
		return nil
	case "name":
		return errors.New("--output=name: findings have no names; --output='jsonpath={.findings[*].object}' prints the objects")
	}
	return o.print.Validate()
}

func (o *lintOptions) show(format string, report *lint.Report) error {
	switch format {
	case "", formatText:
		if err := report.Text(o.Out, o.Painter(o.Out)); err != nil {
			return err
		}
		_, err := fmt.Fprintln(o.ErrOut, report.Summary())
		return err
	case formatSARIF:
		return report.SARIF(o.Out)
	}
	return o.print.Print(o.Out, report)
}

// fails reports whether the worst finding is one that --fail-on names.
func fails(worst lint.Severity, failOn string) bool {
	return failOn != "never" && (worst == lint.Error || worst == lint.Warning && failOn == string(lint.Warning))
}
