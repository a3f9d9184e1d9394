// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/origin"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
)

type explainOptions struct {
	*cli.Factory
	print *cli.PrintFlags

	selector      string
	allNamespaces bool
	// workloadCluster is --workload-cluster, and cluster what it means.
	workloadCluster string
	cluster         types.NamespacedName
	// key is --key, or the last argument.
	key string
}

func newExplainCommand(f *cli.Factory) *cobra.Command {
	o := &explainOptions{Factory: f, print: cli.NewPrintFlags()}
	command := &cobra.Command{
		Use:   "explain (KIND/NAME... | KIND NAME | KIND [-l SELECTOR] [-A]) [KEY]",
		Short: "Tell where labels, annotations, taints and fields come from, and why one did not arrive",
		Long: `Tell where each label, annotation, taint and in-place field of an object comes from: the object and the field that declare
it, the rule by which it is inherited, and who owns it here. What is inherited and not there is listed as missing. For an entry that
differs from what is declared, you see both values. With a KEY, only that key is explained.

The kinds are Cluster, ClusterClass, any control plane, MachineDeployment, MachinePool, MachineSet, Machine, any InfraMachine and
BootstrapConfig, and Node. A Node is looked for in the management cluster if that is a Cluster itself, and otherwise in the workload
cluster of the Machine that names it in status.nodeRef.

The exit code is 0 if all is as declared, 1 if something is missing or differs or the KEY is absent or nowhere, and 2 if the question
could not be answered.`,
		Example: `  # A Machine, in the namespace of the current context
  kubectl heirloom explain machine/md-0-x7k2p
  # One label of a Node: where is it from, or why is it not there?
  kubectl heirloom explain node/worker-1 team
  # One taint
  kubectl heirloom explain node/worker-1 dedicated:NoSchedule
  # All Machines of a MachineDeployment
  kubectl heirloom explain machines -l cluster.x-k8s.io/deployment-name=md-0 -n fleet
  # What a Cluster's topology declares
  kubectl heirloom explain cluster/prod
  # A Node whose name exists in several workload clusters
  kubectl heirloom explain node/worker-1 --workload-cluster=fleet/prod
  # A Node of a management cluster that manages itself as Cluster fleet/mgmt
  kubectl heirloom explain node/worker-1 --management-cluster=fleet/mgmt
  # For a program
  kubectl heirloom explain machine/md-0-x7k2p -o json`,
		ValidArgsFunction: f.Complete(cli.Takes{Key: true}),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	o.print.AddFlags(command)
	flags := command.Flags()
	flags.StringVarP(&o.selector, "selector", "l", "", "Label selector: explain all objects of the kind that it matches.")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Explain the objects of the kind in all namespaces.")
	flags.StringVar(&o.workloadCluster, "workload-cluster", "", "<namespace>/<name> of the Cluster whose Nodes you mean.")
	flags.StringVar(&o.key, "key", "", "The same as the argument KEY, for a key that looks like an object.")
	return command
}

func (o *explainOptions) run(ctx context.Context, args []string) error {
	selector, err := o.validate()
	if err != nil {
		return err
	}
	arguments, err := cli.ParseArguments(args, cli.Takes{Key: o.key == "", Choosing: o.selector != "" || o.allNamespaces})
	if err != nil {
		return err
	}
	management, err := o.Management()
	if err != nil {
		return err
	}
	request, err := arguments.Resolve(management.RESTMapper())
	if err != nil {
		return err
	}
	o.key = cmp.Or(o.key, request.Key)
	server, err := o.ReadSettings(ctx, management)
	if err != nil {
		return err
	}
	explainer := o.explainer(management, server)
	objects, err := o.objects(ctx, management, explainer, request, selector)
	if err != nil {
		return err
	}
	done := o.Progress("Reading owners")
	found, err := explainer.All(ctx, objects)
	done()
	if shown := o.show(found, request.All != nil || len(objects) > 1, server); err == nil {
		return shown
	}
	return err // a question that was not answered counts for more than what was found
}

// validate checks the flags, before anything is read.
func (o *explainOptions) validate() (labels.Selector, error) {
	if err := o.print.Validate(); err != nil {
		return nil, err
	}
	if o.workloadCluster != "" {
		var err error
		if o.cluster, err = cli.ParseCluster("--workload-cluster", o.workloadCluster); err != nil {
			return nil, err
		}
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector=%q: %w", o.selector, err)
	}
	return selector, nil
}

func (o *explainOptions) explainer(management *cli.Management, server settings.Settings) *origin.Explainer {
	explainer := origin.New(snapshot.New(management, management.Schemas), server)
	explainer.Key, explainer.Cluster = o.key, o.cluster
	explainer.Nodes = snapshot.Nodes(func(ctx context.Context, cluster types.NamespacedName) (client.Reader, error) {
		defer o.Progress("Connecting to the workload cluster of Cluster %s", cluster)()
		return o.Workload(ctx, management, cluster)
	}).Once()
	if given := o.Config.Namespace; given != nil {
		explainer.Namespace = *given
	}
	return explainer
}

// objects returns the objects that are asked for.
func (o *explainOptions) objects(
	ctx context.Context, management *cli.Management, explainer *origin.Explainer, request *cli.Request, selector labels.Selector,
) ([]origin.Object, error) {
	namespace, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	var objects []origin.Object
	for _, named := range request.Objects {
		object := origin.Object{GroupVersionKind: named.Kind.GroupVersionKind, Key: types.NamespacedName{Namespace: namespace, Name: named.Name}}
		if named.Kind.Scope.Name() == meta.RESTScopeNameRoot {
			object.Key.Namespace = ""
		}
		objects = append(objects, object)
	}
	if request.All == nil {
		return objects, nil
	}
	gvk := request.All.GroupVersionKind
	defer o.Progress("Listing all objects of kind %s", gvk.Kind)()
	if origin.IsNode(gvk) {
		names, err := explainer.NodeNames(ctx, selector)
		for _, name := range names {
			objects = append(objects, origin.Object{GroupVersionKind: gvk, Key: types.NamespacedName{Name: name}})
		}
		return objects, err
	}
	if o.allNamespaces {
		namespace = ""
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk)
	if err := management.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing all objects of kind %s: %w", gvk.Kind, err)
	}
	for i := range list.Items {
		objects = append(objects, origin.Object{GroupVersionKind: gvk, Key: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return objects, nil
}

// show prints the explanations, and says by the error whether all is as it should be.
func (o *explainOptions) show(found []*origin.Explanation, several bool, server settings.Settings) error {
	if len(found) == 0 && !several {
		return nil // an error says why
	}
	list := origin.NewList(found, server.Notes...)
	wrong := list.Wrong()
	if o.key != "" {
		wrong = list.Only(o.key)
	}
	var result cli.Result = list
	if !several {
		result = list.Single()
	}
	rows := len(result.Table(false).Rows)
	if rows > 0 || !o.print.ForPeople() {
		if err := o.print.Print(o.Out, o.Painter(o.Out), result); err != nil {
			return err
		}
	}
	if o.print.ForPeople() {
		notes := list.AllNotes()
		if rows == 0 && len(notes) == 0 {
			notes = []string{"There is nothing to explain."}
		}
		for _, note := range notes {
			if _, err := fmt.Fprintln(o.ErrOut, "Note: "+note); err != nil {
				return err
			}
		}
	}
	if wrong {
		return cli.ErrFound
	}
	return nil
}
