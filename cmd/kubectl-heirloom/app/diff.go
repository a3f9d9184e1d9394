// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/kubectl/pkg/cmd/apply"
	kubectl "k8s.io/kubectl/pkg/cmd/diff"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/diff"
)

type diffOptions struct {
	*cli.Factory
	files                             resource.FilenameOptions
	apply                             kubectl.InfoObject // with the flags of kubectl apply
	fromFiles, allNamespaces, showAll bool
	failOn                            string
	print                             *cli.PrintFlags
}

func newDiffCommand(f *cli.Factory) *cobra.Command {
	o := &diffOptions{Factory: f, print: cli.NewPrintFlags().WithoutNames()}
	command := &cobra.Command{
		Use:   "diff (-f FILE | -k DIRECTORY | - | [cluster/NAME... | NAME...] [-A])",
		Short: "Preview a change, down to the Nodes, without writing it",
		Long: `Preview a change, object by object, down to the Nodes, with the Pods that its taints would evict, and the objects that use
labels which Nodes would lose. Nothing is written.

The plugin sends your files to the API server as a dry run. Then it computes every object of their Clusters from the top down, by the
server's rules. Without files, you see pending writes of the server in the named Clusters, or in all Clusters of the namespace. Rollouts are
not shown: Cluster API replaces Machines if you change a version or a template. KUBECTL_EXTERNAL_DIFF shows the differences, as with
kubectl diff.

The exit code is 0 if nothing would change, 1 if an object would change, and 2 without an answer, or if no known object would change
and not everything could be read. With --fail-on=used, it is 1 only if Nodes would lose or change a label that an object uses, and 2 also
if that is unknown.`,
		Example: `  # Writes that this file would cause, down to the Nodes
  kubectl heirloom diff -f md-0.yaml

  # The same for the edited output of another command
  kubectl get clusterclass quick-start -o yaml | sed s/ml/ai/ | kubectl heirloom diff -f -

  # In a pipeline: stop before Nodes lose a label that something selects
  kubectl heirloom diff -f clusterclass.yaml --fail-on=used

  # Pending writes of the server in one Cluster, and in all Clusters
  kubectl heirloom diff cluster/prod
  kubectl heirloom diff -A`,
		ValidArgsFunction: f.Complete(cli.Takes{Clusters: true}),
		RunE:              o.run,
	}
	flags := command.Flags()
	cmdutil.AddFilenameOptionFlags(command, &o.files, "with the objects that you are about to apply")
	cmdutil.AddServerSideApplyFlags(command)
	cmdutil.AddFieldManagerFlagVar(command, &o.apply.FieldManager, apply.FieldManagerClientSideApply)
	flags.Bool("all", false, "Look at all Clusters of the namespace.")
	_ = flags.MarkDeprecated("all", "without files and names, you get all Clusters of the namespace") // the flag exists
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Show the Clusters of all namespaces.")
	flags.BoolVar(&o.showAll, "show-all", false, "Show every object, also if it changes in the same way as another object of its set.")
	flags.StringVar(&o.failOn, "fail-on", "change", "What makes the exit code 1: change, or used (a label that Nodes lose and an object uses).")
	_ = command.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions([]string{"change", "used"}, cobra.ShellCompDirectiveNoFileComp))
	o.print.AddFlags(command)
	return command
}

// complete checks flags and arguments before anything is read, and returns the named Clusters.
func (o *diffOptions) complete(command *cobra.Command, args []string) ([]cli.Argument, error) {
	if slices.Equal(args, []string{"-"}) {
		args, o.files.Filenames = nil, append(o.files.Filenames, "-")
	}
	o.fromFiles = len(o.files.Filenames) > 0 || o.files.Kustomize != ""
	parsed, err := cli.ParseArguments(args, cli.Takes{Clusters: true, Choosing: o.allNamespaces})
	o.apply.ServerSideApply, o.apply.ForceConflicts = cmdutil.GetServerSideApplyFlag(command), cmdutil.GetForceConflictsFlag(command)
	o.apply.FieldManager = apply.GetApplyFieldManagerFlag(command, o.apply.ServerSideApply)
	switch {
	case err != nil:
		return nil, err
	case o.fromFiles && (len(args) > 0 || o.allNamespaces):
		return nil, errors.New("files cannot be combined with Clusters or --all-namespaces")
	case o.apply.ForceConflicts && !o.apply.ServerSideApply:
		return nil, errors.New("--force-conflicts needs --server-side")
	case o.failOn != "change" && o.failOn != "used":
		return nil, fmt.Errorf("--fail-on=%q: must be change or used", o.failOn)
	}
	return parsed.Objects, o.print.Validate()
}

func (o *diffOptions) run(command *cobra.Command, args []string) error {
	ctx := command.Context()
	named, err := o.complete(command, args)
	if err != nil {
		return err
	}
	namespace, err := o.Namespace()
	if err != nil {
		return err
	}
	read := resource.NewBuilder(o.Config).Unstructured().NamespaceParam(namespace).DefaultNamespace().
		FilenameParam(*o.Config.Namespace != "", &o.files).Flatten().Do()
	if o.fromFiles && read.Err() != nil { // a file does not exist
		return read.Err()
	}
	q := diff.Question{}
	if _, q.World, err = world(ctx, o.Factory); err != nil {
		return err
	}
	if o.fromFiles {
		q.Files, err = o.dryRuns(read)
	} else {
		q.Clusters, err = clusters(ctx, o.Factory, &q.World, named, o.allNamespaces)
	}
	if err != nil {
		return err
	}
	done := o.Progress("Computing changes")
	result, err := diff.Ask(ctx, q)
	done()
	if err != nil {
		return err
	}
	result.Notes = append(result.Notes, q.Settings.Notes...)
	return o.show(result)
}

// dryRuns returns the objects of the files. kubectl's own code sends them to the API server.
func (o *diffOptions) dryRuns(read *resource.Result) (files []diff.File, err error) {
	infos, err := read.Infos()
	if err == nil && len(infos) == 0 {
		return nil, errors.New("the files contain no objects")
	}
	for _, info := range infos {
		local, _ := info.Object.(*unstructured.Unstructured) // the builder returns only unstructured objects
		run := o.apply
		run.LocalObj, run.Info, run.Force, run.IOStreams = local, info, true, o.IOStreams
		files = append(files, diff.File{Unstructured: local, DryRun: func() (live, merged runtime.Object, err error) {
			if err = info.Get(); apierrors.IsNotFound(err) {
				info.Object = nil
			} else if err != nil {
				return nil, nil, err
			}
			merged, err = run.Merged()
			return run.Live(), merged, err
		}})
	}
	return files, err
}

func (o *diffOptions) show(result *diff.Result) (err error) {
	switch {
	case o.print.Format() != "":
		err = o.print.Print(o.Out, o.Painter(o.Out), result)
	case len(result.Objects) > 0:
		err = result.Show(o.IOStreams, o.showAll)
	}
	if err == nil && o.print.ForPeople() {
		_, err = fmt.Fprintln(o.Out, cli.Escape(strings.Join(result.Lines(), "\n")))
	}
	used, unknown := result.Used()
	switch {
	case err != nil:
		return err
	case o.failOn == "change" && len(result.Objects) > 0, o.failOn == "used" && used:
		return cli.ErrFound
	case o.failOn == "used" && unknown:
		return errors.New("not everything could be read that tells whether a label is used")
	case o.failOn == "change" && result.Unread:
		return errors.New("not everything could be read, so an unread object may change")
	}
	return nil
}
