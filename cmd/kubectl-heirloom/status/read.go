// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/pace"
	"github.com/heirloom-dev/heirloom/pkg/pods"
)

// cluster has the Nodes and settings of a Cluster.
type cluster struct {
	types.NamespacedName
	pace.Rollout
	// other says that the server does not handle the Cluster.
	other    bool
	settings inherit.NoExecuteOf
	done     int
	// sets counts the Nodes that have not had their turn yet, by their limits, and leaving the Nodes that wait for their Pods.
	sets    map[[2]pace.Limit]int
	leaving []*compare.Node
	// harm is the reason for a halt, and stays has the Pods that stay for now, by Node.
	harm  string
	stays []string
	// err says why the Cluster could not be read, podsErr why its Pods could not.
	err, podsErr error
}

// atOnce limits how many Clusters are read together. They mostly wait for API servers that do not answer.
const atOnce = 100

// read reads the roll-outs in all these Clusters.
func read(ctx context.Context, w *compare.World, keys []types.NamespacedName) []*cluster {
	all, group := make([]*cluster, len(keys)), errgroup.Group{}
	group.SetLimit(atOnce)
	for i, key := range keys {
		group.Go(func() error {
			all[i] = &cluster{NamespacedName: key, settings: inherit.NoExecuteOf{Wave: inherit.LastWave}, sets: map[[2]pace.Limit]int{}}
			all[i].err = all[i].read(ctx, w)
			return nil
		})
	}
	_ = group.Wait() // each Cluster has its own error
	return all
}

func (c *cluster) read(ctx context.Context, w *compare.World) error {
	object, chain := &clusterv1.Cluster{}, w.Store.Chain(c.NamespacedName)
	if err := w.Store.Get(ctx, c.NamespacedName, object); apierrors.IsNotFound(err) {
		return cli.NotFound("Cluster", c.NamespacedName)
	} else if err != nil {
		return fmt.Errorf("getting Cluster %s: %w", c, err)
	}
	_, other := w.Settings.LeavesOut(c.Namespace)
	c.other = other || w.Settings.Policy().LeftToAnother(object)
	c.settings, _ = chain.NoExecuteOf(ctx, object, w.Settings.Config.NoExecuteLimits)
	if c.other {
		return nil
	}
	nodes := &corev1.NodeList{}
	server, err := w.Nodes(ctx, c.NamespacedName)
	if err == nil {
		err = server.List(ctx, nodes)
	}
	if errors.Is(err, cli.ErrSkipped) || err != nil && !ptr.Deref(object.Status.Initialization.InfrastructureProvisioned, false) {
		return nil // there are no Nodes to write yet
	}
	if err != nil {
		return fmt.Errorf("its Nodes cannot be read: %w", err)
	}
	for i := range nodes.Items {
		if err := c.add(ctx, w, &nodes.Items[i]); err != nil {
			return err
		}
	}
	c.podsErr = c.readPods(ctx, w, server, nodes.Items)
	return nil
}

// add counts a Node as the loop does.
func (c *cluster) add(ctx context.Context, w *compare.World, node *corev1.Node) error {
	o := w.Node(ctx, c.NamespacedName, node)
	n := o.Node
	if o.Err != nil {
		return fmt.Errorf("comparing Node %s: %w", node.Name, o.Err)
	}
	if !n.Decided.Inherits() || n.Decided.Observed {
		return nil
	}
	turn := n.Plan.Node.Record.Turn()
	if !turn.IsZero() {
		c.Turns = append(c.Turns, turn)
	}
	switch {
	case len(n.Plan.Held) == 0 && !turn.IsZero():
		c.done++
	case len(n.Plan.Held) == 0:
	case n.Plan.WaitsForPods() && c.settings.Budgets:
		c.Waiting++
		c.leaving = append(c.leaving, n)
	default:
		c.Waiting++
		group, size, err := w.Store.Chain(c.NamespacedName).NodeGroup(ctx, n.Decided.Source)
		if err != nil {
			return fmt.Errorf("finding the Nodes that share the taints of Node %s: %w", node.Name, err)
		}
		c.sets[pace.Limits("Cluster "+c.String(), c.settings.Rate, group.String(), size)]++
	}
	return nil
}

// readPods looks for Pods that a roll-out has harmed, and for Pods that hold it up.
func (c *cluster) readPods(ctx context.Context, w *compare.World, server client.Reader, nodes []corev1.Node) error {
	since := c.Began()
	if c.Waiting == 0 || since.IsZero() {
		return nil
	}
	unschedulable, notReady, err := pods.Harmed(ctx, server, nodes, since)
	c.harm = pods.Harm(unschedulable, notReady, since)
	if err != nil || len(c.leaving) == 0 {
		return err //nolint:wrapcheck // it says what failed
	}
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := server.List(ctx, budgets); err != nil {
		return fmt.Errorf("listing the PodDisruptionBudgets: %w", err)
	}
	for _, n := range c.leaving {
		leaving, err := pods.ToEvict(ctx, server, n.Name, n.Plan.Held, w.Now)
		if err != nil {
			return err //nolint:wrapcheck // it says what failed
		}
		if stays := heldUp(leaving, budgets.Items); stays != "" {
			c.stays = append(c.stays, "Node "+n.Name+" waits for "+stays)
		}
	}
	return nil
}

// heldUp names the Pods of a Node that may not leave now, with their budgets; "" if there are none.
func heldUp(leaving []corev1.Pod, budgets []policyv1.PodDisruptionBudget) string {
	var full []policyv1.PodDisruptionBudget
	for i := range budgets {
		if budgets[i].Status.DisruptionsAllowed == 0 {
			full = append(full, budgets[i])
		}
	}
	var names []string
	for i := range leaving {
		if of := pods.Budgets(&leaving[i], full); len(of) > 0 && leaving[i].DeletionTimestamp == nil {
			pod := leaving[i].Namespace + "/" + leaving[i].Name
			names = append(names, "Pod "+pod+", whose PodDisruptionBudget "+strings.Join(of, ", ")+" allows no disruption")
		}
	}
	return cli.Some(names, 1)
}
