// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/uses"
)

func newUsesCommand(f *cli.Factory) *cobra.Command {
	o := &fleetOptions{Factory: f, print: cli.NewPrintFlags()}
	command := &cobra.Command{
		Use:   "uses KEY[=VALUE] [cluster/NAME... | NAME...]",
		Short: "List the objects of workload clusters that depend on a label of Nodes",
		Long: `List the objects of workload clusters that depend on a label of Nodes, before you change the label: Pods and the objects that create them
(nodeSelector, affinity, topology keys), PersistentVolumes, StorageClasses, RuntimeClasses, and objects of Calico, Cilium, MetalLB,
Karpenter, the SR-IOV operator and the NVIDIA GPU operator. Pods count as the object that controls them.

EFFECT says what the selector does with the label: it requires or forbids the label, names the label as one alternative of several, or
prefers Nodes by it. With a VALUE, only selectors count that tell a Node with this value from a Node without the label, and
other values that a selector names are alternatives.

The exit code is 0 if no object uses the label, 1 if an object does, and 2 if something could not be read.`,
		Example: `  # What depends on a role, in all Clusters?
  kubectl heirloom uses node-role.kubernetes.io/route-reflector -A

  # Which objects select this value, in Cluster prod?
  kubectl heirloom uses node.cluster.x-k8s.io/pool=gpu prod`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), func(ctx context.Context) error { return o.uses(ctx, args) })
		},
	}
	o.addFlags(command)
	command.ValidArgsFunction = f.CompleteLabel
	return command
}

func (o *fleetOptions) uses(ctx context.Context, args []string) error {
	if err := o.print.Validate(); err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.New("specify the KEY of a label, such as node-role.kubernetes.io/gpu")
	}
	answer, err := uses.NewAnswer(args[0])
	if err != nil {
		return err
	}
	keys, err := o.keys(ctx, args[1:])
	if err != nil {
		return err
	}
	if o.WorkloadKubeconfig != "" && len(keys) > 1 {
		return fmt.Errorf("--workload-kubeconfig leads to one workload cluster: name one of the %s", cli.Count(len(keys), "Cluster"))
	}
	found, unread := make([][]uses.Dependant, len(keys)), make([]error, len(keys))
	done := o.Progress("Reading the objects of %s", cli.Count(len(keys), "workload cluster"))
	group := errgroup.Group{}
	group.SetLimit(atOnce)
	for i, key := range keys {
		group.Go(func() error {
			found[i], unread[i] = o.usesOf(ctx, key, answer.Change())
			return nil
		})
	}
	_ = group.Wait() // each Cluster has its own error
	done()
	for i, key := range keys {
		answer.Add(key, found[i], unread[i])
	}
	answer.Notes = o.world.Settings.Notes
	sentences := answer.Sentences()
	named := slices.ContainsFunc(keys, func(key types.NamespacedName) bool { return key.Name == answer.Key })
	if len(args) == 1 && len(answer.Dependants) == 0 && named {
		sentences = append(sentences, fmt.Sprintf("%[1]s is the name of a Cluster. The KEY of a label comes first: kubectl heirloom uses KEY %[1]s", answer.Key))
	}
	switch err := o.show(answer, sentences...); {
	case err != nil:
		return err
	case len(answer.Unread) > 0:
		return errors.New("not everything could be read")
	case len(answer.Dependants) > 0:
		return cli.ErrFound
	}
	return nil
}

// atOnce limits how many workload clusters are read together.
const atOnce = 20

func (o *fleetOptions) usesOf(ctx context.Context, cluster types.NamespacedName, change uses.Change) ([]uses.Dependant, error) {
	if err := o.world.Store.Get(ctx, cluster, &clusterv1.Cluster{}); apierrors.IsNotFound(err) {
		return nil, cli.NotFound("Cluster", cluster)
	} else if err != nil {
		return nil, err
	}
	server, err := o.world.Nodes(ctx, cluster)
	if err != nil {
		return nil, err
	}
	found, err := uses.Find(ctx, server, cluster, change)
	return found[0], err
}
