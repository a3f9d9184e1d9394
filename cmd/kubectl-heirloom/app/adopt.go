// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/adopt"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/diff"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/store"
)

type adoptOptions struct {
	*cli.Factory
	print *cli.PrintFlags
}

func newAdoptCommand(f *cli.Factory) *cobra.Command {
	o := &adoptOptions{Factory: f, print: cli.NewPrintFlags("patch").WithoutNames()}
	command := &cobra.Command{
		Use:   "adopt (cluster/NAME | NAME)",
		Short: "Write declarations for labels and taints that Nodes have from elsewhere",
		Long: `Find the labels and taints that all Nodes of a pool have although nobody declares them: from kubelets' flags in bootstrap
configurations, from policies, scripts or kubectl. Keys that kubelets, cloud providers and Cluster API set on every Node are left out.

For each entry, you see who has set it, and with -o wide the bootstrap configuration because of which kubelets register with it. Merge
patches declare the same in the topology, or in the pools. diff has looked at them: you see whether anything would change on a Node.
Nothing is written.

The exit code is 0 if everything is declared, 1 if all Nodes of a pool have an undeclared entry, and 2 without an answer.`,
		Example: `  # What the Nodes of Cluster prod have from elsewhere, and the patches that declare it
  kubectl heirloom adopt prod

  # Declare it
  kubectl heirloom adopt prod -o patch | sh`,
		ValidArgsFunction: f.Complete(cli.Takes{Clusters: true}),
		RunE:              func(command *cobra.Command, args []string) error { return o.run(command.Context(), args) },
	}
	o.print.AddFlags(command)
	command.Flags().Lookup("output").Usage += " patch is only the commands that declare the entries."
	return command
}

func (o *adoptOptions) run(ctx context.Context, args []string) error {
	if err := o.print.Validate(); err != nil {
		return err
	}
	named, err := cli.ParseArguments(args, cli.Takes{Clusters: true})
	if err == nil && len(named.Objects) != 1 {
		err = errors.New("specify one Cluster, as cluster/NAME or NAME")
	}
	if err != nil {
		return err
	}
	namespace, err := o.Namespace()
	if err != nil {
		return err
	}
	m, w, err := world(ctx, o.Factory)
	if err != nil {
		return err
	}
	answer, err := o.adopt(ctx, m, w, types.NamespacedName{Namespace: namespace, Name: named.Objects[0].Name})
	if err != nil {
		return err
	}
	if err := o.show(answer); err != nil {
		return err
	}
	if answer.Undeclared() {
		return cli.ErrFound
	}
	return nil
}

func (o *adoptOptions) adopt(ctx context.Context, m *cli.Management, w compare.World, cluster types.NamespacedName) (*adopt.Adoption, error) {
	defer o.Progress("Reading Cluster %s and its Nodes", cluster)()
	tree, err := w.Tree(ctx, cluster, nil)
	if err == nil && tree.NodesErr != nil {
		err = fmt.Errorf("reading the Nodes of Cluster %s: %w", cluster, tree.NodesErr)
	}
	if err != nil {
		return nil, err
	}
	answer, err := adopt.New(tree, w.Settings.Policy(), adopt.Read(ctx, &w, tree))
	if err != nil {
		return nil, err
	}
	answer.Notes = append(answer.Notes, w.Settings.Notes...)
	if len(answer.Patches) == 0 {
		return answer, nil
	}
	q := diff.Question{World: w, Files: dryRuns(ctx, m, answer.Patches)}
	q.Store = store.New(m, m.Schemas.ControlPlane) // diff puts the results of the patches in front of the stored objects
	if result, err := diff.Ask(ctx, q); err == nil {
		answer.Compare(tree, result)
	} else {
		answer.Notes = append(answer.Notes, "The effect of the patch is unknown: "+cli.OneLine(err))
	}
	return answer, nil
}

// dryRuns returns the patched objects. The API server patches them in a dry run.
func dryRuns(ctx context.Context, m client.Client, patches []adopt.Patch) (files []diff.File) {
	for i := range patches {
		p := &patches[i]
		files = append(files, diff.File{Unstructured: p.Object(), DryRun: func() (live, merged runtime.Object, err error) {
			now, raw := p.Object(), []byte(nil)
			if err = m.Get(ctx, client.ObjectKeyFromObject(now), now); err == nil {
				raw, err = json.Marshal(p.Patch)
			}
			if err != nil {
				return nil, nil, err
			}
			patched := now.DeepCopy()
			return now, patched, m.Patch(ctx, patched, client.RawPatch(types.MergePatchType, raw), client.DryRunAll)
		}})
	}
	return files
}

func (o *adoptOptions) show(answer *adopt.Adoption) error {
	if o.print.Format() == "patch" {
		commands, err := answer.Commands()
		if err == nil {
			_, err = fmt.Fprint(o.Out, commands)
		}
		return err
	}
	err := o.print.Print(o.Out, o.Painter(o.Out), answer)
	if !o.print.ForPeople() {
		return err
	}
	for _, sentence := range answer.Sentences() {
		if err == nil {
			_, err = fmt.Fprintln(o.Out, cli.Escape(sentence))
		}
	}
	return err
}
