// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/pace"
)

func TestForecast(t *testing.T) {
	of := func(nodes int, cluster string, perMinute float64, set string, size int) waiters {
		return waiters{pace.Limits(cluster, perMinute, set, size), nodes}
	}
	for name, test := range map[string]struct {
		groups []waiters
		want   time.Duration
	}{
		"nothing":                      {},
		"one Node at once":             {groups: []waiters{of(1, "a", 1, "x", 1)}},
		"one of each Cluster at once":  {groups: []waiters{of(1, "a", 1, "x", 1), of(1, "b", 1, "y", 1)}},
		"the rest at the rate":         {groups: []waiters{of(5, "a", 2, "x", 100)}, want: 2 * time.Minute},
		"a set is slower":              {groups: []waiters{of(11, "a", 60, "x", 11)}, want: 5 * time.Minute},
		"two sets share their Cluster": {groups: []waiters{of(2, "a", 1, "x", 2), of(2, "a", 1, "y", 2)}, want: 3 * time.Minute},
		"the slowest Cluster counts":   {groups: []waiters{of(2, "a", 1, "x", 2), of(4, "b", 1, "y", 4)}, want: 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			groups := map[string]*waiters{}
			for i, group := range test.groups {
				groups[fmt.Sprint(i)] = &group
			}
			NewWithT(t).Expect(forecast(groups)).To(Equal(test.want))
		})
	}
}
