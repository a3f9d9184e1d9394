// SPDX-License-Identifier: Apache-2.0

package pace_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/pace"
)

func TestForecast(t *testing.T) {
	of := func(nodes int, limits ...pace.Limit) pace.Group { return pace.Group{Limits: limits, Nodes: nodes} }
	for name, test := range map[string]struct {
		rate   float64
		groups []pace.Group
		want   time.Duration
	}{
		"nothing":                      {rate: 1},
		"no rate":                      {groups: []pace.Group{of(100, limit("a"))}},
		"one Node at once":             {rate: 1, groups: []pace.Group{of(1, limit("a"))}},
		"one of each Cluster at once":  {rate: 1, groups: []pace.Group{of(1, limit("a")), of(1, limit("b"))}},
		"the rest at the rate":         {rate: 2, groups: []pace.Group{of(5, limit("a"))}, want: 2 * time.Minute},
		"the share of a set is slower": {rate: 60, groups: []pace.Group{of(11, pace.ShareOf("md", 11), limit("a"))}, want: 5 * time.Minute},
		"two sets share their Cluster": {rate: 1, groups: []pace.Group{
			of(2, pace.ShareOf("x", 2), limit("a")), of(2, pace.ShareOf("y", 2), limit("a")),
		}, want: 3 * time.Minute},
		"two Clusters share their class": {rate: 1, groups: []pace.Group{
			of(2, limit("a"), limit("class")), of(1, limit("b"), limit("class")),
		}, want: 2 * time.Minute},
		"the slowest Cluster counts": {rate: 1, groups: []pace.Group{of(2, limit("a")), of(4, limit("b"))}, want: 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(pace.Forecast(test.rate, test.groups...)).To(BeNumerically("~", test.want, time.Second))
		})
	}
}
