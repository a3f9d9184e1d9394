// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"cmp"
	"fmt"
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
// begins when the earlier waves are over. For each Cluster that waits or is under way, it returns the reason why it may not give turns, or
// "", by name. It is a function of the states alone, so that a new leader goes on where the last one was.
func Next(clusters []Cluster, limit int) map[string]string {
	clusters = slices.SortedFunc(slices.Values(clusters), func(a, b Cluster) int {
		return cmp.Or(cmp.Compare(a.Wave, b.Wave), cmp.Compare(a.Name, b.Name))
	})
	why, left := map[string]string{}, limit
	for i, c := range clusters {
		if i == 0 || clusters[i-1].Wave < c.Wave { // a later wave takes no place of an earlier wave
			for _, of := range clusters[i:] {
				if of.Wave == c.Wave && of.UnderWay {
					left--
					why[of.Name] = limited(left+1, limit)
				}
			}
		}
		if !c.Waits || c.UnderWay {
			continue
		}
		if why[c.Name] = before(clusters, c); why[c.Name] != "" {
			continue
		}
		if why[c.Name] = limited(left, limit); why[c.Name] == "" && !c.Halted {
			left--
		}
	}
	return why
}

// before returns the reason why a Cluster may not begin before others of the sorted Clusters, or "".
func before(clusters []Cluster, c Cluster) string {
	for _, other := range clusters {
		switch {
		case other.Name == c.Name || other.Wave > c.Wave:
		case other.Wave < c.Wave && (other.Waits || other.UnderWay || other.Unknown):
			return "an earlier wave, in which Cluster " + other.Name + " is not over"
		case other.Unknown:
			return "a Cluster whose Nodes have not been read yet"
		}
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
