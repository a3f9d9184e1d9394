// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/whatif"
)

type diffOptions struct {
	*cli.Factory
	files                       resource.FilenameOptions
	apply                       whatif.Apply
	all, allNamespaces, showAll bool
	print                       *cli.PrintFlags
	// output is --output; empty means that differences are shown as kubectl diff shows them.
	output string
}

func newDiffCommand(f *cli.Factory) *cobra.Command {
	o := &diffOptions{Factory: f, print: cli.NewPrintFlags()}
	command := &cobra.Command{
		Use:   "diff (-f FILE | -k DIRECTORY | - | CLUSTER... | --all)",
		Short: "Show what a change would write, down to the Nodes, without writing it",
		Long: `Show what a change would write, object by object, down to the Nodes, without writing anything.

Your files are sent to the API server as a dry run. Then every object of the Clusters they affect is computed from the top down, by the
server's rules. With the name of a Cluster or --all instead of files, you see what the server has yet to write. For taints you also see
which Pods they would evict.

The differences are shown by "diff -u -N", or by the program in KUBECTL_EXTERNAL_DIFF. Machines and Nodes of one set that change alike are
shown once. The exit code is 0 if nothing would change, 1 if something would, and 2 if that is not known.

It does not show what others do: Cluster API replaces Machines if you change a version or a template of infrastructure, and other
controllers write what they manage.`,
		Example: `  # What this file would write, down to the Nodes
  kubectl heirloom diff -f md-0.yaml

  # What the edited output of another command would write
  kubectl get clusterclass quick-start -o yaml | sed s/ml/ai/ | kubectl heirloom diff -f -

  # What the server has yet to write in one Cluster, and in all of them
  kubectl heirloom diff prod
  kubectl heirloom diff --all -A

  # For a program
  kubectl heirloom diff -f md-0.yaml -o json`,
		ValidArgsFunction: f.Complete(cli.Takes{Clusters: true}),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.output = cmd.Flags().Lookup("output").Value.String()
			return o.run(cmd.Context(), args)
		},
	}
	flags := command.Flags()
	(&genericclioptions.FileNameFlags{
		Usage:     "File, directory or URL with what you are about to apply.",
		Filenames: &o.files.Filenames, Kustomize: &o.files.Kustomize, Recursive: &o.files.Recursive,
	}).AddFlags(flags)
	flags.BoolVar(&o.all, "all", false, "Without files: look at all Clusters of the namespace.")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "With --all: look at the Clusters of all namespaces.")
	flags.BoolVar(&o.showAll, "show-all", false, "Show every object, also those that change as another one of their set does.")
	flags.BoolVar(&o.apply.ServerSide, "server-side", false, "Ask what your files become if you apply them with --server-side.")
	flags.BoolVar(&o.apply.ForceConflicts, "force-conflicts", false, "With --server-side: take fields over from other managers.")
	flags.StringVar(&o.apply.FieldManager, "field-manager", "", "Name of the field manager with which you apply.")
	o.print.AddFlags(command)
	return command
}

func (o *diffOptions) run(ctx context.Context, args []string) error {
	clusters, err := o.validate(args)
	if err != nil {
		return err
	}
	management, err := o.Management()
	if err != nil {
		return err
	}
	question := whatif.Question{Apply: o.apply, Clusters: clusters}
	if question.Settings, err = o.ReadSettings(ctx, management); err != nil {
		return err
	}
	if question.Files, err = o.read(); err != nil {
		return err
	}
	from := snapshot.New(management, management.Schemas)
	if o.all {
		namespace, err := o.namespace()
		if err != nil {
			return err
		}
		if question.Clusters, err = whatif.Clusters(ctx, from, namespace); err != nil {
			return err
		}
	}
	question.Nodes = func(ctx context.Context, cluster types.NamespacedName) (client.Reader, error) {
		return o.Workload(ctx, management, cluster)
	}
	done := o.Progress("Working out what would be written")
	result, err := whatif.Ask(ctx, from, question)
	done()
	if err != nil {
		return err
	}
	result.Notes = append(result.Notes, question.Settings.Notes...)
	if err := o.show(ctx, result); err != nil {
		return err
	}
	if result.Differs() {
		return cli.ErrFound
	}
	return nil
}

// validate checks flags and arguments, and returns the Clusters that are named.
func (o *diffOptions) validate(args []string) ([]types.NamespacedName, error) {
	if err := o.print.Validate(); err != nil {
		return nil, err
	}
	if len(args) == 1 && args[0] == "-" {
		args, o.files.Filenames = nil, append(o.files.Filenames, "-")
	}
	hasFiles := len(o.files.Filenames) > 0 || o.files.Kustomize != ""
	given := 0
	for _, one := range []bool{hasFiles, len(args) > 0, o.all} {
		if one {
			given++
		}
	}
	switch {
	case given != 1:
		return nil, fmt.Errorf("choose one: files (-f, -k or -), names of Clusters, or --all")
	case o.allNamespaces && !o.all:
		return nil, fmt.Errorf("--all-namespaces needs --all")
	case o.apply.ForceConflicts && !o.apply.ServerSide:
		return nil, fmt.Errorf("--force-conflicts needs --server-side")
	}
	if o.apply.FieldManager == "" {
		o.apply.FieldManager = o.apply.DefaultManager()
	}
	return o.clusters(args)
}

// clusters returns the Clusters that are named.
func (o *diffOptions) clusters(args []string) ([]types.NamespacedName, error) {
	namespace, err := o.Namespace()
	if err != nil || len(args) == 0 {
		return nil, err
	}
	parsed, err := cli.ParseArguments(args, cli.Takes{Clusters: true})
	o.all = o.all || parsed.All != ""
	var clusters []types.NamespacedName
	for _, object := range parsed.Objects {
		clusters = append(clusters, types.NamespacedName{Namespace: namespace, Name: object.Name})
	}
	return clusters, err
}

func (o *diffOptions) namespace() (string, error) {
	if o.allNamespaces {
		return "", nil
	}
	return o.Namespace()
}

// read reads the files, in kubectl's own way.
func (o *diffOptions) read() ([]*unstructured.Unstructured, error) {
	if len(o.files.Filenames) == 0 && o.files.Kustomize == "" {
		return nil, nil
	}
	namespace, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	infos, err := resource.NewBuilder(o.Config).Unstructured().
		NamespaceParam(namespace).DefaultNamespace().
		FilenameParam(o.Config.Namespace != nil && *o.Config.Namespace != "", &o.files).
		Flatten().
		Do().Infos()
	if err != nil {
		return nil, fmt.Errorf("reading the files: %w", err)
	}
	var all []*unstructured.Unstructured
	for _, info := range infos {
		object, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("reading the files: %s is a %T", info.Name, info.Object)
		}
		all = append(all, object)
	}
	return all, nil
}

// show writes the differences to standard output, and what else there is to say to standard error.
func (o *diffOptions) show(ctx context.Context, result *whatif.Result) error {
	if o.output != "" {
		if err := o.print.Print(o.Out, o.Painter(o.Out), result); err != nil {
			return err
		}
		if !o.print.ForPeople() {
			return nil
		}
	} else if result.Differs() {
		program := whatif.Program{External: os.Getenv("KUBECTL_EXTERNAL_DIFF"), Out: o.Out, ErrOut: o.ErrOut}
		if err := program.Show(ctx, result.Objects, o.showAll); err != nil {
			return err
		}
	}
	for _, line := range result.Lines() {
		if _, err := fmt.Fprintln(o.ErrOut, line); err != nil {
			return err
		}
	}
	return nil
}
