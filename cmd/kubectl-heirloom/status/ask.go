// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/pace"
)

// Question is a question about some Clusters.
type Question struct {
	*compare.World
	Clusters []types.NamespacedName
	// Named says that Clusters without a roll-out are listed.
	Named bool
}

// Ask answers a Question. It also reads all other Clusters of the server, because their order decides which Clusters go on.
func Ask(ctx context.Context, q Question) (*Status, error) {
	s := &Status{Rollouts: []Rollout{}, asked: len(q.Clusters)}
	s.APIVersion, s.Kind = "cli.heirloom.dev/v1alpha1", "RolloutStatus"
	all := read(ctx, q.World, append(slices.Clone(q.Clusters), s.others(ctx, q)...))
	if len(q.Clusters) == 1 && all[0].err != nil {
		return nil, all[0].err
	}
	why, begins := s.order(q, all)
	for _, c := range all[:len(q.Clusters)] {
		row := c.row(why[c.String()], q.Settings.Config.NoExecuteLimits.Soak, q.Now)
		if begin, known := begins[c.String()]; known && c.Waiting > 0 {
			left := int64((begin + pace.LastTurn(c.sets)).Round(time.Second).Seconds())
			row.SecondsLeft = &left
		}
		if q.Named || row.State != None {
			s.Rollouts = append(s.Rollouts, row)
		}
	}
	s.Notes = slices.Concat(s.doubts, q.Settings.Notes)
	return s, ctx.Err()
}

// others returns the Clusters about which nobody asks.
func (s *Status) others(ctx context.Context, q Question) []types.NamespacedName {
	all, err := q.World.Clusters(ctx, "")
	if err != nil {
		s.doubt("The Clusters of other namespaces cannot be listed", ": "+cli.OneLine(err))
		all, _ = q.World.Clusters(ctx, q.Clusters[0].Namespace)
	}
	return slices.DeleteFunc(all, func(key types.NamespacedName) bool { return slices.Contains(q.Clusters, key) })
}

// order returns why each Cluster may not give turns because of other Clusters, and the time until it may.
func (s *Status) order(q Question, all []*cluster) (why map[string]string, begins map[string]time.Duration) {
	limits, unread, ends := q.Settings.Config.NoExecuteLimits, 0, map[string]time.Duration{}
	var states []pace.Cluster
	for _, c := range all {
		if c.err != nil {
			unread++
		}
		if c.other {
			continue
		}
		states = append(states, c.Cluster(c.String(), c.settings, c.harm != ""))
		if c.goesOn() {
			ends[c.String()] = c.lasts(limits.Soak, q.Now)
		}
	}
	if unread > 0 {
		s.doubt(cli.Count(unread, "Cluster")+" could not be read", "")
	}
	most := limits.MostClusters(len(states))
	return pace.Next(states, most), estimate(states, most, ends)
}

func (s *Status) doubt(what, because string) {
	s.doubts = append(s.doubts, what+", so the order of the Clusters may differ"+because+".")
}

// goesOn reports whether nothing in the Cluster keeps the roll-out from its end.
func (c *cluster) goesOn() bool {
	return !c.settings.Paused && c.harm == "" && len(c.stays) == 0 && c.podsErr == nil
}

// lasts returns how long a Cluster keeps its place from the time at which it may give turns.
func (c *cluster) lasts(soak time.Duration, now time.Time) time.Duration {
	if c.Waiting > 0 {
		return pace.LastTurn(c.sets) + soak
	}
	return max(0, c.Soaked(soak).Sub(now))
}

// row describes the roll-out. why is the reason why it may not give turns because of other Clusters.
func (c *cluster) row(why string, soak time.Duration, now time.Time) Rollout {
	r := Rollout{
		Namespace: c.Namespace, Cluster: c.Name, State: Running, Nodes: c.done + c.Waiting, Done: c.done,
		Waiting: c.Waiting - len(c.stays), HeldUp: len(c.stays), Rate: c.settings.Rate, Mode: inherit.NoExecutePace,
	}
	if c.settings.Wave < inherit.LastWave {
		r.Wave = &c.settings.Wave
	}
	if c.settings.Budgets {
		r.Mode = inherit.NoExecuteBudgets
	}
	if since := c.Began(); !since.IsZero() {
		r.Began = &metav1.Time{Time: since}
	}
	switch {
	case c.err != nil:
		r.State, r.Error = Unknown, cli.OneLine(c.err)
	case r.Nodes == 0:
		r.State, r.Reason = None, "No roll-out"
	case c.Waiting == 0:
		r.State = Done
		if end := c.Soaked(soak); now.Before(end) {
			r.Reason = "it keeps its place until " + end.UTC().Format(time.RFC3339)
		}
	case c.settings.Paused:
		r.State, r.Reason = Paused, "paused by "+c.settings.By
	case c.harm != "":
		r.State, r.Reason = Halted, c.harm
	case c.podsErr != nil:
		r.State = Unknown
	case len(c.stays) > 0:
		r.State, r.Reason = HeldUp, strings.ReplaceAll(cli.Some(c.stays, 2), ", Node", "; Node")
	case why != "":
		r.State, r.Reason = Waiting, why
	case len(c.leaving) > 0:
		r.Reason = "Nodes that wait for their Pods to leave: " + cli.Some(names(c.leaving), 3)
	}
	if c.podsErr != nil {
		r.Error = cli.OneLine(c.podsErr)
	}
	return r
}

func names(nodes []*compare.Node) (all []string) {
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	return all
}

// estimate returns the time until each Cluster may give turns, by its name. ends has the time for which each Cluster then keeps its place.
// A Cluster that is not in ends keeps it for an unknown time, and the Clusters that wait for it are missing in the result.
func estimate(states []pace.Cluster, most int, ends map[string]time.Duration) map[string]time.Duration {
	left := slices.DeleteFunc(slices.Clone(states), func(c pace.Cluster) bool { return !c.Waits && !c.UnderWay })
	begins, now := map[string]time.Duration{}, time.Duration(0)
	for {
		why := pace.Next(left, most)
		next, found := time.Duration(0), false
		for i := range left {
			lasts, known := ends[left[i].Name]
			if why[left[i].Name] != "" || !known {
				continue
			}
			if _, begun := begins[left[i].Name]; !begun {
				begins[left[i].Name], left[i].UnderWay = now, true
			}
			if end := begins[left[i].Name] + lasts; !found || end < next {
				next, found = end, true
			}
		}
		if !found {
			return begins
		}
		now = max(now, next)
		left = slices.DeleteFunc(left, func(c pace.Cluster) bool {
			begin, begun := begins[c.Name]
			return begun && begin+ends[c.Name] <= now
		})
	}
}
