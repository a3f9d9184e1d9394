// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/origin"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
)

type explainOptions struct {
	*cli.Factory
	output string
}

func newExplainCommand(f *cli.Factory) *cobra.Command {
	o := &explainOptions{Factory: f}
	command := &cobra.Command{
		Use:   "explain (TYPE/NAME | TYPE NAME)",
		Short: "Tell where each label, annotation and taint of an object comes from",
		Long: `Tell where each label, annotation and taint of an object comes from: of a control plane, MachineDeployment,
MachinePool, MachineSet, Machine, InfraMachine, BootstrapConfig or Node.

What is inherited is followed up to the object that declares it, if need be to the Cluster's topology and its ClusterClass. For the rest, metadata.managedFields tells who set it.
The Cluster API objects and the Node are read from the same API server, that of the management cluster.`,
		Example: `  # A Machine, in the namespace of the current context
  kubectl heirloom explain machine/md-0-x7k2p

  # A MachineDeployment, with what its template declares for its Machines
  kubectl heirloom explain machinedeployment md-0 -n fleet

  # A Node that names its instance in spec.providerID
  kubectl heirloom explain node/worker-1

  # A Node of a management cluster that manages itself as Cluster fleet/mgmt
  kubectl heirloom explain node/worker-1 --management-cluster=fleet/mgmt

  # For a program
  kubectl heirloom explain machine/md-0-x7k2p -o json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			show, err := printerFor(o.output)
			if err != nil {
				return err
			}
			explanation, err := o.explain(cmd, args)
			if err != nil {
				return err
			}
			return show(cmd, explanation)
		},
	}
	command.Flags().StringVarP(&o.output, "output", "o", "", "Output format: json, yaml or kyaml. If unspecified, a table.")
	return command
}

func (o *explainOptions) explain(cmd *cobra.Command, args []string) (*origin.Explanation, error) {
	management, err := o.Management()
	if err != nil {
		return nil, err
	}
	settings, err := o.ReadSettings(cmd.Context(), management)
	if err != nil {
		return nil, err
	}
	explainer := origin.New(snapshot.New(management, management.Schemas))
	explainer.ManagementCluster = settings.Config.ManagementClusterKey
	info, err := o.resolve(args)
	if err != nil {
		return nil, err
	}
	key := types.NamespacedName{Namespace: info.Namespace, Name: info.Name}
	return explainer.Explain(cmd.Context(), info.Mapping.GroupVersionKind, key)
}

// resolve finds out which object is meant, in kubectl's own way, without reading it.
func (o *explainOptions) resolve(args []string) (*resource.Info, error) {
	namespace, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	infos, err := resource.NewBuilder(o.Config).Unstructured().
		NamespaceParam(namespace).DefaultNamespace().
		ResourceTypeOrNameArgs(false, args...).
		RequireObject(false).
		Do().Infos()
	if err != nil {
		return nil, fmt.Errorf("finding out what %q is: %w", strings.Join(args, " "), err)
	}
	if len(infos) != 1 {
		return nil, fmt.Errorf("%q are %d objects: explain takes one at a time", strings.Join(args, " "), len(infos))
	}
	return infos[0], nil
}
