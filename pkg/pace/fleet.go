// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Rollout is the roll-out of taints that evict Pods in a Cluster, as the plans and records of its Nodes show it.
type Rollout struct {
	// Waiting is the number of Nodes that wait for such a taint.
	Waiting int
	// Turns are the times of the turns of Nodes. A record forgets its turn when the roll-out is over.
	Turns []time.Time
}

// Began returns the time of the first turn, or zero.
func (r Rollout) Began() time.Time {
	if len(r.Turns) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(r.Turns, time.Time.Compare)
}

// Soaked returns the time at which a roll-out in which no Node waits is over: none has had its turn for a while.
func (r Rollout) Soaked(soak time.Duration) time.Time {
	if len(r.Turns) == 0 {
		return time.Time{}
	}
	return slices.MaxFunc(r.Turns, time.Time.Compare).Add(soak)
}

// Cluster returns the state of the Cluster with these settings. halted says that the roll-out has done harm there.
func (r Rollout) Cluster(name string, of inherit.NoExecuteOf, halted bool) Cluster {
	return Cluster{Name: name, Wave: of.Wave, Waits: r.Waiting > 0, UnderWay: len(r.Turns) > 0, Halted: of.Paused || halted}
}

// Cluster is the state of the roll-out of taints that evict Pods in a Cluster.
type Cluster struct {
	Name string
	Wave int
	// Waits says that some of its Nodes wait for their turn, UnderWay that some of its Nodes have had their turn, and that the roll-out is not
	// over, or has not been over for long enough.
	Waits, UnderWay bool
	// Halted says that its Nodes may not have a turn now. Unknown says that it may wait: its Nodes have not been read yet.
	Halted, Unknown bool
}

// Next decides which of the Clusters go on or begin, in the order of their waves, then by name, and no more than limit at a time. A wave
// begins when the earlier waves are over, and takes none of their places. For each Cluster that waits or is under way, it returns the reason
// why it may not give turns, or "", by name. It is a function of the states alone, so that a new leader goes on where the last one was.
func Next(clusters []Cluster, limit int) map[string]string {
	waves := map[int][]Cluster{}
	for _, c := range clusters {
		waves[c.Wave] = append(waves[c.Wave], c)
	}
	why, left, earlier := map[string]string{}, limit, ""
	for _, number := range slices.Sorted(maps.Keys(waves)) {
		wave := slices.SortedFunc(slices.Values(waves[number]), func(a, b Cluster) int { return cmp.Compare(a.Name, b.Name) })
		unread := 0
		for _, c := range wave {
			if c.Unknown {
				unread++
			}
			if c.UnderWay {
				why[c.Name] = limited(left, limit)
				left--
			}
		}
		for _, c := range wave {
			if !c.Waits || c.UnderWay {
				continue
			}
			if why[c.Name] = cmp.Or(earlier, c.awaits(unread), limited(left, limit)); why[c.Name] == "" && !c.Halted {
				left--
			}
		}
		if i := slices.IndexFunc(wave, func(c Cluster) bool { return c.Waits || c.UnderWay || c.Unknown }); earlier == "" && i >= 0 {
			earlier = "an earlier wave, in which Cluster " + wave[i].Name + " is not over"
		}
	}
	return why
}

// awaits returns the reason why a Cluster may not begin if the Nodes of another Cluster of its wave have not been read, or "".
func (c Cluster) awaits(unread int) string {
	if unread > 1 || unread == 1 && !c.Unknown {
		return "a Cluster whose Nodes have not been read yet"
	}
	return ""
}

// limited returns the reason why no further Cluster may begin if no place is left, or "".
func limited(left, limit int) string {
	if left > 0 {
		return ""
	}
	return fmt.Sprintf("the number of Clusters at a time, %d (--no-execute-clusters)", limit)
}
