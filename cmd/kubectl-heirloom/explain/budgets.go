// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/pods"
)

// left returns the reason for which a Node waits for a taint that evicts Pods, as far as the Node's own Cluster shows it: who has paused the
// roll-out, or Pods with their disruption budgets.
func (x *Explainer) left(ctx context.Context, o *compare.Object) string {
	if o.Node == nil || len(o.Node.Plan.Held) == 0 {
		return ""
	}
	chain := x.Store.Chain(o.Cluster)
	cluster, err := chain.Cluster(ctx, o.Cluster.Namespace, o.Cluster.Name)
	if err == nil {
		if of, _ := chain.NoExecuteOf(ctx, cluster, x.Settings.Config.NoExecuteLimits); of.Paused {
			return " The roll-out is paused by " + of.By + "."
		}
	}
	if !o.Node.Plan.WaitsForPods() {
		return ""
	}
	var leaving []corev1.Pod
	budgets := &policyv1.PodDisruptionBudgetList{}
	server, err := x.Nodes(ctx, o.Cluster)
	if err == nil {
		leaving, err = pods.ToEvict(ctx, server, o.Node.Name, o.Node.Plan.Held, x.Now)
		err = errors.Join(err, server.List(ctx, budgets))
	}
	if err != nil {
		return fmt.Sprintf(" Its Pods are not known: %s.", cli.OneLine(err))
	}
	var names []string
	for i := range leaving {
		name := leaving[i].Namespace + "/" + leaving[i].Name
		if of := pods.Budgets(&leaving[i], budgets.Items); len(of) > 0 {
			name += " (budget " + strings.Join(of, ", ") + ")"
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return " All have left."
	}
	return fmt.Sprintf(" It waits for %s: %s.", cli.Count(len(names), "Pod"), cli.Some(names, 3))
}
