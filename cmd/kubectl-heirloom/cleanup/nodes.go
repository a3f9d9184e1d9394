// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/cleanup"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// previewNodes prints the Nodes that the loop cleans up, because the object carries the label or their Cluster does.
func (o *Object) previewNodes(ctx context.Context, mode cleanup.Mode) error {
	cluster, err := o.labeled(ctx)
	if err != nil || cluster.Name == "" {
		return err
	}
	tree, err := o.World.Tree(ctx, cluster, nil)
	switch {
	case err != nil:
		return fmt.Errorf("looking for the Nodes of %s: %w", o, err)
	case errors.Is(tree.NodesErr, cli.ErrSkipped):
		return nil
	case tree.NodesErr != nil:
		return fmt.Errorf("the Nodes of Cluster %s are not shown, because they cannot be read: %w", cluster, tree.NodesErr)
	}
	var errs []error
	tree.Each(func(of *compare.Object) {
		if of.Node != nil && of.Node.Decided.Reason.CleansUp() && !of.Node.Decided.Observed && (o.isCluster() || o.has(of)) {
			errs = append(errs, o.previewNode(ctx, cluster, of.Node.Name, mode))
		}
	})
	return errors.Join(errs...)
}

func (o *Object) previewNode(ctx context.Context, cluster types.NamespacedName, name string, mode cleanup.Mode) error {
	server, err := o.Workload(ctx, cluster)
	if err != nil {
		return err
	}
	changed, removed, err := cleanup.Node(ctx, server, server, name, mode)
	if err != nil {
		return fmt.Errorf("cleaning up Node %s of Cluster %s: %w", name, cluster, err)
	}
	if changed {
		o.would("node/"+name+" cleaned up in workload cluster "+cluster.String(), removed)
	}
	return nil
}

// has reports whether a Node is below the object.
func (o *Object) has(node *compare.Object) bool {
	above := node.Parent
	return above != nil && above.GVK.GroupKind() == o.GroupKind() && above.Object.GetName() == o.Name
}

// labeled puts the object with the label into the fleet, and returns its Cluster; empty if the label does not concern Nodes.
func (o *Object) labeled(ctx context.Context) (cluster types.NamespacedName, err error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(o.GroupVersionKind)
	switch {
	case o.isCluster():
	case o.Group == clusterv1.GroupVersion.Group && (o.Kind == "Machine" || o.Kind == "MachinePool"):
	default:
		return cluster, nil
	}
	if err := o.World.Store.Get(ctx, o.NamespacedName, object); err != nil {
		return cluster, fmt.Errorf("getting %s: %w", o, err)
	}
	object = object.DeepCopy()
	object.SetLabels(labels.Merge(object.GetLabels(), labels.Set{inherit.IgnoreLabel: inherit.IgnoreAndCleanUp}))
	o.World.Store.Put(object)
	if o.isCluster() {
		return o.NamespacedName, nil
	}
	name, _, _ := unstructured.NestedString(object.Object, "spec", "clusterName")
	return types.NamespacedName{Namespace: o.Namespace, Name: name}, nil
}
