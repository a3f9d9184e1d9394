// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/explain"
)

type explainOptions struct {
	*cli.Factory
	print *cli.PrintFlags

	selector, workloadCluster, key string
	allNamespaces, all             bool
}

func newExplainCommand(f *cli.Factory) *cobra.Command {
	o := &explainOptions{Factory: f, print: cli.NewPrintFlags()}
	command := &cobra.Command{
		Use:   "explain (KIND/NAME... | KIND NAME... | KIND [-l SELECTOR] [-A]) [KEY]",
		Short: "Show where labels, annotations, taints and fields come from, and why a key did not arrive",
		Long: `Show where each label, annotation, taint and in-place field of an object comes from, and which declarations did not arrive.
With a KEY, follow the key from the object that declares it down to this object: where it stopped, why, and how to fix it.

The kinds are Cluster, ClusterClass, any control plane, MachineDeployment, MachinePool, MachineSet, Machine, any InfraMachine and
BootstrapConfig, and Node. The plugin looks for a Node in the management cluster if the management cluster is itself a Cluster, and
otherwise in the workload cluster of the Machine that names the Node in status.nodeRef.

The exit code is 0 if all declarations have arrived, 1 if an entry is missing or differs, or the KEY is absent, and 2 without an answer.`,
		Example: `  # A Machine, in the namespace of the current context
  kubectl heirloom explain machine/md-0-x7k2p
  # A label or taint of a Node: where does it come from, or why is it missing?
  kubectl heirloom explain node/worker-1 team
  # All Machines of a MachineDeployment
  kubectl heirloom explain machines -l cluster.x-k8s.io/deployment-name=md-0 -n fleet
  # Declarations of a Cluster's topology
  kubectl heirloom explain cluster/prod
  # A Node whose name exists in several workload clusters
  kubectl heirloom explain node/worker-1 --workload-cluster=fleet/prod
  # A Node of a management cluster that manages itself as Cluster fleet/mgmt
  kubectl heirloom explain node/worker-1 --management-cluster=fleet/mgmt`,
		ValidArgsFunction: f.Complete(cli.Takes{Key: true}),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	o.print.AddFlags(command)
	flags := command.Flags()
	flags.StringVarP(&o.selector, "selector", "l", "", "Selector (label query): explain all matching objects of the kind.")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Explain the objects of the kind in all namespaces.")
	flags.BoolVar(&o.all, "show-all", false, "Also show entries that are set on the object itself, and bookkeeping.")
	flags.BoolVar(&o.all, "all", false, "The same as --show-all.")
	_ = flags.MarkDeprecated("all", "use --show-all") // the flag exists
	flags.StringVar(&o.workloadCluster, "workload-cluster", "", "<namespace>/<name> of the Cluster to which the Node belongs.")
	flags.StringVar(&o.key, "key", "", "The same as the argument KEY, for a key that looks like an object.")
	_ = command.RegisterFlagCompletionFunc("workload-cluster", f.CompleteFlag("workload-cluster")) // the flag exists
	return command
}

func (o *explainOptions) run(ctx context.Context, args []string) error {
	arguments, wrong := cli.ParseArguments(args, cli.Takes{Key: o.key == "", Choosing: o.selector != "" || o.allNamespaces})
	if wrong != nil && o.key != "" {
		wrong = fmt.Errorf("%w (--key is the KEY: %q)", wrong, o.key)
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		err = fmt.Errorf("--selector=%q: %w", o.selector, err)
	}
	var cluster types.NamespacedName
	if o.workloadCluster != "" && err == nil {
		cluster, err = cli.ParseCluster("--workload-cluster", o.workloadCluster)
	}
	if err := cmp.Or(o.print.Validate(), err, wrong); err != nil {
		return err
	}
	return o.explain(ctx, arguments, selector, cluster)
}

func (o *explainOptions) explain(ctx context.Context, arguments cli.Arguments, selector labels.Selector, cluster types.NamespacedName) error {
	management, w, err := world(ctx, o.Factory)
	if err != nil {
		return err
	}
	request, err := arguments.Resolve(management.RESTMapper())
	if err != nil {
		return err
	}
	explainer := explain.New(w)
	explainer.Key, explainer.Cluster = cmp.Or(o.key, request.Key), cluster
	explainer.Nodes = func(ctx context.Context, cluster types.NamespacedName) (client.Reader, error) {
		defer o.Progress("Connecting to the workload cluster of Cluster %s", cluster)()
		return w.Nodes(ctx, cluster)
	}
	if given := o.Config.Namespace; given != nil {
		explainer.Namespace = *given
	}
	objects, err := o.objects(ctx, explainer, request, selector)
	if err != nil {
		return err
	}
	done := o.Progress("Reading owners")
	found, err := explainer.All(ctx, objects)
	done()
	list := &explain.List{Items: found, Notes: w.Settings.Notes, Key: explainer.Key, Single: request.All == nil && len(objects) == 1, All: o.all}
	if len(found) > 0 || !list.Single {
		err = errors.Join(err, list.Print(o.Out, o.print, o.Painter(o.Out)))
	}
	if err == nil && list.Wrong() {
		return cli.ErrFound
	}
	return err
}

// objects returns the requested objects.
func (o *explainOptions) objects(
	ctx context.Context, explainer *explain.Explainer, request *cli.Request, selector labels.Selector,
) (objects []explain.Object, err error) {
	namespace, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	for _, named := range request.Objects {
		object := explain.Object{GroupVersionKind: named.Kind.GroupVersionKind, Key: types.NamespacedName{Namespace: namespace, Name: named.Name}}
		if named.Kind.Scope.Name() == meta.RESTScopeNameRoot {
			object.Key.Namespace = ""
		}
		objects = append(objects, object)
	}
	if request.All == nil {
		return objects, nil
	}
	if o.allNamespaces {
		namespace = ""
	}
	defer o.Progress("Listing all objects of kind %s", request.All.GroupVersionKind.Kind)()
	return explainer.Choose(ctx, request.All.GroupVersionKind, namespace, selector)
}
