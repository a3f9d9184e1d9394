// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"math"
	"time"
)

// Group are so many Nodes with the same limits.
type Group struct {
	Limits []Limit
	Nodes  int
}

// Forecast returns how long it takes until the last of these Nodes has passed, at so many Nodes a minute. It counts on all limits
// having room now, and on each Node asking as soon as there is room for it.
func Forecast(perMinute float64, groups ...Group) time.Duration {
	type node struct{ group, number int }
	start := time.Time{}
	now := start
	p := New[node](perMinute, func() time.Time { return now })
	if p.perMinute <= 0 {
		return 0
	}
	passed := make([]int, len(groups))
	for {
		next := time.Duration(math.MaxInt64)
		waits := false
		for i, group := range groups {
			for passed[i] < group.Nodes && p.Pass(node{i, passed[i]}, "", group.Limits...).OK {
				passed[i]++
			}
			if passed[i] < group.Nodes {
				wait, _ := p.wait(group.Limits, now)
				next, waits = min(next, wait), true
			}
		}
		if !waits {
			return now.Sub(start)
		}
		now = now.Add(next)
	}
}
