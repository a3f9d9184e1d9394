// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/tree"
)

type treeOptions struct {
	*cli.Factory
	print         *cli.PrintFlags
	showAll       bool
	allNamespaces bool
}

func newTreeCommand(f *cli.Factory) *cobra.Command {
	o := &treeOptions{Factory: f, print: cli.NewPrintFlags(tree.Mermaid, tree.Dot)}
	command := &cobra.Command{
		Use:   "tree [cluster/NAME... | NAME...]",
		Short: "Show a Cluster's chain of owners, what enters at each step, and what is missing",
		Long: `Show a Cluster's chain of owners from its ClusterClass down to its Nodes. Each object has what enters there: the labels, annotations,
taints and fields that it declares for the objects below it and that nothing above it declares. An object that does not have what
it inherits is marked with "!" and the keys. One that is paused or opted out has the reason.

Equal Machines of one owner share a line, and their infrastructure and bootstrap objects appear only if something is wrong with
them. --show-all shows each object. JSON and YAML always have all of them.

Without a name, you get all Clusters of the namespace. If a workload cluster does not answer, its tree ends at the Machines.`,
		Example: `  # The Cluster prod in the namespace of the current context
  kubectl heirloom tree prod

  # All Clusters, each object on a line of its own
  kubectl heirloom tree -A --show-all

  # Where each entry is declared, and who declares what is missing
  kubectl heirloom tree cluster/prod -n fleet -o wide

  # A picture for a ticket or a page
  kubectl heirloom tree prod -o mermaid
  kubectl heirloom tree prod -o dot | dot -Tsvg > prod.svg`,
		ValidArgsFunction: f.Complete(cli.Takes{Clusters: true}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.print.Validate(); err != nil {
				return err
			}
			named, err := cli.ParseArguments(args, cli.Takes{Clusters: true, Choosing: o.allNamespaces})
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), named.Objects)
		},
	}
	o.print.AddFlags(command)
	command.Flags().BoolVar(&o.showAll, "show-all", false, "Show each object on a line of its own, with infrastructure and bootstrap objects.")
	command.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Show the Clusters of all namespaces.")
	return command
}

func (o *treeOptions) run(ctx context.Context, named []cli.Argument) error {
	management, err := o.Management()
	if err != nil {
		return err
	}
	read, err := o.ReadSettings(ctx, management)
	if err != nil {
		return err
	}
	from := snapshot.New(management, management.Schemas)
	clusters, err := o.clusters(ctx, from, named)
	if err != nil {
		return err
	}
	forest := tree.New(tree.View{ShowAll: o.showAll, Namespaces: o.allNamespaces})
	forest.Notes = append(forest.Notes, read.Notes...)
	for _, cluster := range clusters {
		if err := o.add(ctx, forest, from, management, read, cluster); err != nil {
			return err
		}
	}
	return o.show(forest)
}

// clusters returns the Clusters to show.
func (o *treeOptions) clusters(ctx context.Context, from *snapshot.Snapshot, named []cli.Argument) ([]types.NamespacedName, error) {
	namespace, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	var all []types.NamespacedName
	for _, cluster := range named {
		all = append(all, types.NamespacedName{Namespace: namespace, Name: cluster.Name})
	}
	if len(all) > 0 {
		return all, nil
	}
	if o.allNamespaces {
		namespace = metav1.NamespaceAll
		done := o.Progress("Reading all objects of Cluster API")
		err := from.Prefetch(ctx)
		done()
		if err != nil {
			return nil, err
		}
	}
	list := &clusterv1.ClusterList{}
	if err := from.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the Clusters: %w", err)
	}
	for i := range list.Items {
		all = append(all, client.ObjectKeyFromObject(&list.Items[i]))
	}
	if len(all) == 0 && o.allNamespaces {
		return nil, errors.New("there are no Clusters")
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there are no Clusters in namespace %s: choose another one with --namespace, or all of them with --all-namespaces", namespace)
	}
	return all, nil
}

// add adds the tree of one Cluster.
func (o *treeOptions) add(
	ctx context.Context, forest *tree.Forest, from *snapshot.Snapshot, m *cli.Management, read settings.Settings, cluster types.NamespacedName,
) error {
	defer o.Progress("Reading Cluster %s and its Nodes", cluster)()
	nodes := snapshot.Nodes(func(ctx context.Context, key types.NamespacedName) (client.Reader, error) {
		return o.Workload(ctx, m, key)
	}).Once()
	policy := read.Policy()
	walked, err := from.Walk(ctx, cluster, read, policy, nodes)
	if apierrors.IsNotFound(err) {
		return cli.NotFound("Cluster", cluster)
	}
	if err != nil {
		return err
	}
	policy.SkipNothing = true
	all, err := from.Walk(ctx, cluster, read, policy, nodes)
	if err != nil {
		return err
	}
	forest.Add(ctx, tree.Builder{Policy: policy, Now: time.Now()}, walked, all)
	return nil
}

func (o *treeOptions) show(forest *tree.Forest) error {
	switch format := o.print.Format(); format {
	case tree.Mermaid, tree.Dot:
		if err := forest.Draw(o.Out, format); err != nil {
			return err
		}
	default:
		if err := o.print.Print(o.Out, o.Painter(o.Out), forest); err != nil {
			return err
		}
		if !o.print.ForPeople() {
			return nil
		}
	}
	for _, note := range forest.Notes {
		if _, err := fmt.Fprintln(o.ErrOut, "Note: "+note); err != nil {
			return err
		}
	}
	return nil
}
