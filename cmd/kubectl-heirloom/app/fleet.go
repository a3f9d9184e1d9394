// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/store"
)

// fleetOptions are those of commands about Clusters with everything below them. trees sets the management cluster and the settings.
type fleetOptions struct {
	*cli.Factory
	print         *cli.PrintFlags
	allNamespaces bool

	management *cli.Management
	read       settings.Settings
	// look looks at the API server of a Cluster before its Nodes are read; nil if there is nothing to look for.
	look func(ctx context.Context, cluster types.NamespacedName, server client.Client)
}

func (o *fleetOptions) addFlags(command *cobra.Command) {
	o.print.AddFlags(command)
	command.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Show the Clusters of all namespaces.")
}

// trees compares everything below the Clusters that the arguments name, or below all. failed says how many could not be read, if there are
// others.
func (o *fleetOptions) trees(ctx context.Context, args []string) (trees []*compare.Tree, failed, err error) {
	if err = o.print.Validate(); err != nil {
		return nil, nil, err
	}
	named, err := cli.ParseArguments(args, cli.Takes{Clusters: true, Choosing: o.allNamespaces})
	if err != nil {
		return nil, nil, err
	}
	if o.management, err = o.Management(); err != nil {
		return nil, nil, err
	}
	if o.read, err = o.ReadSettings(ctx, o.management); err != nil {
		return nil, nil, err
	}
	w := &compare.World{Store: store.New(o.management, o.management.Schemas.ControlPlane), Settings: o.read, Now: time.Now()}
	w.Nodes = func(ctx context.Context, key types.NamespacedName) (client.Reader, error) {
		server, err := o.Workload(ctx, o.management, key)
		if err == nil && o.look != nil {
			o.look(ctx, key, server)
		}
		return server, err
	}
	clusters, err := o.clusters(ctx, w.Store, named.Objects)
	if err != nil {
		return nil, nil, err
	}
	defer o.Progress("Reading %s and their Nodes", cli.Count(len(clusters), "Cluster"))()
	trees = w.Trees(ctx, clusters)
	unread := slices.DeleteFunc(slices.Clone(trees), func(t *compare.Tree) bool { return t.Err == nil })
	switch {
	case len(unread) == 1 && len(trees) == 1:
		return nil, nil, trees[0].Err
	case len(unread) > 0:
		failed = fmt.Errorf("%s could not be read", cli.Count(len(unread), "Cluster"))
	}
	return trees, failed, ctx.Err()
}

// clusters returns the Clusters that are named, or all.
func (o *fleetOptions) clusters(ctx context.Context, from *store.Store, named []cli.Argument) (all []types.NamespacedName, err error) {
	namespace, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	for _, cluster := range named {
		all = append(all, types.NamespacedName{Namespace: namespace, Name: cluster.Name})
	}
	if len(named) > 0 {
		return all, nil
	}
	where := fmt.Sprintf(" in namespace %q (use -n or -A)", namespace)
	if o.allNamespaces {
		namespace, where = "", ""
		defer o.Progress("Reading all objects of Cluster API")()
		_ = from.Prefetch(ctx, namespace) // who may not list all namespaces may list some, and each Cluster has its error
	}
	list := &clusterv1.ClusterList{}
	if err = from.List(ctx, list, client.InNamespace(namespace)); err == nil && len(list.Items) == 0 {
		err = fmt.Errorf("there are no Clusters%s", where)
	}
	for i := range list.Items {
		all = append(all, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return all, err
}

// show prints an answer and, for people, sentences and notes about it.
func (o *fleetOptions) show(answer cli.Result, sentences []string) error {
	err := o.print.Print(o.Out, o.Painter(o.Out), answer)
	for _, note := range o.read.Notes {
		sentences = append(sentences, "Note: "+note)
	}
	for _, sentence := range sentences {
		if err == nil && o.print.ForPeople() {
			_, err = fmt.Fprintln(o.Out, printers.EscapeTerminal(sentence))
		}
	}
	return err
}
