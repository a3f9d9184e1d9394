// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/pace"
	"github.com/heirloom-dev/heirloom/pkg/pods"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Consequence is the effect of a new taint on the Pods of a workload cluster.
type Consequence struct {
	Cluster string   `json:"cluster"`
	Taint   string   `json:"taint"`
	Nodes   []string `json:"nodes"`
	// PodsUnknown says that the Pods could not be read.
	PodsUnknown bool `json:"podsUnknown,omitempty"`
	// Evicted are the Pods that the taint evicts, Unschedulable the Pods that stay, but could not come back to their Node.
	Evicted       []Pod `json:"evicted,omitempty"`
	Unschedulable []Pod `json:"unschedulable,omitempty"`
	// IgnoredBudgets are PodDisruptionBudgets of evicted Pods. They do not delay this eviction.
	IgnoredBudgets []string `json:"ignoredBudgets,omitempty"`
}

// Pod is a Pod that a taint affects.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node"`
	// DaemonSet says that a DaemonSet has made the Pod. It makes no Pod on a Node whose taints the Pod does not tolerate.
	DaemonSet bool `json:"daemonSet,omitempty"`
	// AfterSeconds is how long the Pod tolerates the taint, in seconds; 0 if not at all.
	AfterSeconds int64 `json:"afterSeconds"`
}

func (p Pod) String() string {
	name := p.Namespace + "/" + p.Name
	if p.DaemonSet {
		name += " (DaemonSet)"
	}
	if p.AfterSeconds > 0 {
		name += " (after " + duration.HumanDuration(time.Duration(p.AfterSeconds)*time.Second) + ")"
	}
	return name
}

// Pace says how long it takes until the last Node has a taint that evicts its Pods.
type Pace struct {
	Nodes            int     `json:"nodes"`
	NodesAMinute     float64 `json:"nodesAMinute"`
	LastAfterSeconds int64   `json:"lastAfterSeconds"`
}

// consequences computes the effects of the new taints on Nodes of a workload cluster.
func (e *evaluation) consequences(ctx context.Context, cluster types.NamespacedName) error {
	nodes, limits := map[corev1.Taint][]string{}, map[string][2]pace.Limit{}
	for _, o := range e.changed {
		n := o.Node
		if n.Decided.Inherits() && len(n.Plan.Evicting) > 0 {
			set := cmp.Or(setOf(o), n.Decided.Source.String())
			if _, known := limits[set]; !known {
				group, inGroup, err := e.Store.Chain(cluster).NodeGroup(ctx, n.Decided.Source)
				if err != nil {
					return fmt.Errorf("finding the Nodes that share the taints of Node %s: %w", n.Name, err)
				}
				limits[set] = pace.Limits("Cluster "+cluster.String(), e.Settings.Config.NoExecuteRate, group.String(), inGroup)
			}
			e.waiting[limits[set]]++
		}
		for _, t := range n.Next.Taints {
			if at := taint.Find(n.State.Taints, taint.IDOf(t)); at >= 0 && n.State.Taints[at].Value == t.Value {
				continue
			}
			t.TimeAdded = nil
			nodes[t] = append(nodes[t], n.Name)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	all, budgets := &corev1.PodList{}, &policyv1.PodDisruptionBudgetList{}
	from, err := e.Nodes(ctx, cluster)
	if err == nil {
		err = errors.Join(from.List(ctx, all), from.List(ctx, budgets))
	}
	if err != nil {
		e.note(cluster.String(), "The effect of the taints on Pods of Cluster %s is unknown: "+cli.OneLine(err))
	}
	for _, t := range slices.SortedFunc(maps.Keys(nodes), func(a, b corev1.Taint) int { return cmp.Compare(a.ToString(), b.ToString()) }) {
		c := &Consequence{Cluster: cluster.String(), Taint: taint.Format(t), Nodes: nodes[t], PodsUnknown: err != nil}
		if e.Settings.Config.NoExecuteLimits.Budgets { // budgets delay the taint
			budgets.Items = nil
		}
		c.reaches(t, all.Items, budgets.Items)
		e.Taints = append(e.Taints, c)
	}
	return nil
}

// reaches finds the Pods that the taint affects.
func (c *Consequence) reaches(t corev1.Taint, all []corev1.Pod, budgets []policyv1.PodDisruptionBudget) {
	for i := range all {
		pod := &all[i]
		if !pods.Runs(pod) || pod.DeletionTimestamp != nil || !slices.Contains(c.Nodes, pod.Spec.NodeName) {
			continue
		}
		found := Pod{Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, DaemonSet: pods.OfDaemonSet(pod)}
		tolerated := pods.Toleration(pod, t)
		switch {
		case tolerated != nil && tolerated.TolerationSeconds == nil:
		case t.Effect == corev1.TaintEffectNoExecute:
			if tolerated != nil {
				found.AfterSeconds = max(0, *tolerated.TolerationSeconds)
			}
			c.Evicted = append(c.Evicted, found)
			c.ignore(pod, budgets)
		case t.Effect == corev1.TaintEffectNoSchedule && tolerated == nil:
			c.Unschedulable = append(c.Unschedulable, found)
		}
	}
}

func (c *Consequence) ignore(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) {
	for _, name := range pods.Budgets(pod, budgets) {
		if !slices.Contains(c.IgnoredBudgets, name) {
			c.IgnoredBudgets = append(c.IgnoredBudgets, name)
		}
	}
}

// shownPods is how many Pods are named. With -o json, you get all Pods.
const shownPods = 5

// lines describes the effects of a taint for people.
func (c *Consequence) lines() []string {
	lines := []string{fmt.Sprintf("Taint %s is new on %s of Cluster %s: %s", c.Taint, cli.Count(len(c.Nodes), "Node"), c.Cluster, cli.Some(c.Nodes, 3))}
	add := func(does string, pods []Pod, counts func(Pod) bool, how string) {
		var names []string
		for _, pod := range pods {
			if counts(pod) {
				names = append(names, pod.String())
			}
		}
		if len(names) > 0 {
			lines = append(lines, fmt.Sprintf("  %s %s %s: %s", does, cli.Count(len(names), "Pod"), how, cli.Some(names, shownPods)))
		}
	}
	add("evicts", c.Evicted, func(pod Pod) bool { return pod.AfterSeconds == 0 }, "at once")
	add("evicts", c.Evicted, func(pod Pod) bool { return pod.AfterSeconds > 0 }, "later")
	if strings.HasSuffix(c.Taint, ":"+string(corev1.TaintEffectNoExecute)) && len(c.Evicted) == 0 && !c.PodsUnknown {
		lines = append(lines, "  evicts no Pod")
	}
	whose := map[bool]string{true: "its Node", false: "their Nodes"}[len(c.Unschedulable) == 1]
	add("keeps", c.Unschedulable, func(Pod) bool { return true }, "from "+whose+" after a restart")
	if n := len(c.IgnoredBudgets); n > 0 {
		lines = append(lines, "  ignores "+cli.Count(n, "PodDisruptionBudget")+", as all taints do: "+cli.Some(c.IgnoredBudgets, shownPods))
	}
	return lines
}

// paceOf computes when the last of the waiting Nodes gets its turn.
func paceOf(waiting map[[2]pace.Limit]int, perMinute float64) *Pace {
	result := &Pace{NodesAMinute: perMinute, LastAfterSeconds: int64(pace.LastTurn(waiting).Round(time.Second).Seconds())}
	for _, nodes := range waiting {
		result.Nodes += nodes
	}
	return result
}

// String says for people how long it takes.
func (p *Pace) String() string {
	if p.NodesAMinute <= 0 {
		return fmt.Sprintf("%s would get NoExecute taints at the same time, because --no-execute-rate is 0.", cli.Count(p.Nodes, "Node"))
	}
	if p.Nodes == 1 {
		return "1 Node would get NoExecute taints, without a delay."
	}
	return fmt.Sprintf("%s would get NoExecute taints one after the other, the last after %s (--no-execute-rate=%v).",
		cli.Count(p.Nodes, "Node"), duration.HumanDuration(time.Duration(p.LastAfterSeconds)*time.Second), p.NodesAMinute)
}
