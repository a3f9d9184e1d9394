// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/pace"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Consequence is what a new taint does to the Pods of a workload cluster.
type Consequence struct {
	Cluster string   `json:"cluster"`
	Taint   string   `json:"taint"`
	Nodes   []string `json:"nodes"`
	// PodsUnknown says that the Pods could not be read.
	PodsUnknown bool `json:"podsUnknown,omitempty"`
	// Evicted are the Pods that the taint evicts.
	Evicted []Pod `json:"evicted,omitempty"`
	// Unschedulable are Pods that stay, and could not come back to their Node.
	Unschedulable []Pod `json:"unschedulable,omitempty"`
	// IgnoredBudgets are PodDisruptionBudgets of evicted Pods. They do not hold this eviction up.
	IgnoredBudgets []string `json:"ignoredBudgets,omitempty"`
}

// Pace is how long it takes until the last Node has a taint that evicts its Pods.
type Pace struct {
	Nodes            int     `json:"nodes"`
	NodesAMinute     float64 `json:"nodesAMinute"`
	LastAfterSeconds int64   `json:"lastAfterSeconds"`
}

// turns are the Nodes that wait for their turn, by their limits.
type turns struct {
	groups map[string]*waiters
	nodes  int
}

// waiters are so many Nodes with the same limits.
type waiters struct {
	limits [2]pace.Limit
	nodes  int
}

func (t *turns) any() bool { return t.nodes > 0 }

func (t *turns) add(limits [2]pace.Limit) {
	if t.groups == nil {
		t.groups = map[string]*waiters{}
	}
	key := fmt.Sprint(limits)
	if t.groups[key] == nil {
		t.groups[key] = &waiters{limits: limits}
	}
	t.groups[key].nodes++
	t.nodes++
}

// pace asks when the last of them has passed.
func (t *turns) pace(perMinute float64) *Pace {
	return &Pace{Nodes: t.nodes, NodesAMinute: perMinute, LastAfterSeconds: int64(forecast(t.groups).Round(time.Second).Seconds())}
}

// forecast returns how long it takes until the last of these Nodes is tainted. It counts on all limits having room now, and on each
// Node asking as soon as there is room for it.
func forecast(groups map[string]*waiters) time.Duration {
	start := time.Time{}
	now, p := start, &pace.Pacer{}
	left := map[string]int{}
	for name, group := range groups {
		left[name] = group.nodes
	}
	for {
		next := time.Duration(math.MaxInt64)
		for name, group := range groups {
			for left[name] > 0 {
				wait, _ := p.Take(now, group.limits)
				if wait > 0 {
					next = min(next, wait)
					break
				}
				left[name]--
			}
		}
		if next == math.MaxInt64 {
			return now.Sub(start)
		}
		now = now.Add(next)
	}
}

// consequences works out what the new taints of a workload cluster do.
func (e *evaluation) consequences(
	ctx context.Context, chain *owners.Chain, cluster types.NamespacedName, from client.Reader, changed []changedNode,
) error {
	var order []corev1.Taint
	nodes := map[corev1.Taint][]string{}
	for _, node := range changed {
		if len(node.paced) > 0 {
			group, inGroup, err := chain.NodeGroup(ctx, node.source)
			if err != nil {
				return fmt.Errorf("finding the Nodes that share the taints of Node %s: %w", node.Name, err)
			}
			e.evicted.add(pace.Limits("Cluster "+cluster.String(), e.Settings.Config.NoExecuteRate, group.String(), inGroup))
		}
		for _, t := range node.taints {
			t.TimeAdded = nil
			if nodes[t] == nil {
				order = append(order, t)
			}
			nodes[t] = append(nodes[t], node.Name)
		}
	}
	if len(order) == 0 {
		return nil
	}
	running, err := readWorkloads(ctx, from)
	if err != nil {
		e.note("What the taints do to the Pods of Cluster %s is not known: %s", cluster, cli.OneLine(err))
	}
	for _, t := range order {
		one := running.consequence(cluster, t, nodes[t])
		one.PodsUnknown = err != nil
		e.taints = append(e.taints, one)
	}
	return nil
}

// consequence is what one taint does on these Nodes.
func (w workloads) consequence(cluster types.NamespacedName, t corev1.Taint, nodes []string) *Consequence {
	c := &Consequence{Cluster: cluster.String(), Taint: taint.Format(t), Nodes: nodes}
	var evicted []*corev1.Pod
	for _, node := range nodes {
		for _, pod := range w.pods[node] {
			tolerated, seconds := tolerates(pod, t)
			found := podOf(pod)
			switch {
			case tolerated && seconds == nil:
			case t.Effect == corev1.TaintEffectNoExecute:
				if tolerated {
					found.AfterSeconds = max(0, *seconds)
				}
				c.Evicted, evicted = append(c.Evicted, found), append(evicted, pod)
			case t.Effect == corev1.TaintEffectNoSchedule && !tolerated:
				c.Unschedulable = append(c.Unschedulable, found)
			}
		}
	}
	for i := range w.budgets {
		for _, pod := range evicted {
			if budget := &w.budgets[i]; covers(budget, pod) {
				c.IgnoredBudgets = append(c.IgnoredBudgets, budget.Namespace+"/"+budget.Name)
				break
			}
		}
	}
	return c
}

// Lines say what a taint does, for people.
func (c *Consequence) Lines() []string {
	lines := []string{fmt.Sprintf("Taint %s is new on %s of Cluster %s: %s", c.Taint, many(len(c.Nodes), "Node"), c.Cluster, some(c.Nodes, 3))}
	var after []int64
	by := map[int64][]string{}
	for _, pod := range c.Evicted {
		if by[pod.AfterSeconds] == nil {
			after = append(after, pod.AfterSeconds)
		}
		by[pod.AfterSeconds] = append(by[pod.AfterSeconds], pod.String())
	}
	for _, seconds := range slices.Sorted(slices.Values(after)) {
		when := "at once"
		if seconds > 0 {
			when = "after " + duration.HumanDuration(time.Duration(seconds)*time.Second)
		}
		lines = append(lines, fmt.Sprintf("  evicts %s %s: %s", many(len(by[seconds]), "Pod"), when, some(by[seconds], shownPods)))
	}
	if strings.HasSuffix(c.Taint, ":"+string(corev1.TaintEffectNoExecute)) && len(c.Evicted) == 0 && !c.PodsUnknown {
		lines = append(lines, "  evicts no Pod")
	}
	if len(c.Unschedulable) > 0 {
		var names []string
		for _, pod := range c.Unschedulable {
			names = append(names, pod.String())
		}
		lines = append(lines, fmt.Sprintf("  keeps %s from coming back to their Nodes after a restart: %s",
			many(len(names), "Pod"), some(names, shownPods)))
	}
	if len(c.IgnoredBudgets) > 0 {
		lines = append(lines, "  ignores "+many(len(c.IgnoredBudgets), "PodDisruptionBudget")+", as all taints do: "+some(c.IgnoredBudgets, shownPods))
	}
	return lines
}

// shownPods is how many Pods are named. With -o json you get all of them.
const shownPods = 5

// String says how long it takes, for people.
func (p *Pace) String() string {
	if p.NodesAMinute <= 0 {
		return fmt.Sprintf("%s would get taints that evict Pods all at once, because --no-execute-rate is 0.", many(p.Nodes, "Node"))
	}
	return fmt.Sprintf("%s would get taints that evict Pods one after the other: the last after %s (--no-execute-rate=%v).",
		many(p.Nodes, "Node"), duration.HumanDuration(time.Duration(p.LastAfterSeconds)*time.Second), p.NodesAMinute)
}
