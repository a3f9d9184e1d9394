// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/pace"
)

func TestPace(t *testing.T) {
	of := pace.Limits
	for name, test := range map[string]struct {
		waiting map[[2]pace.Limit]int
		seconds int64
	}{
		"one of each Cluster at once":  {map[[2]pace.Limit]int{of("a", 1, "x", 1): 1, of("b", 1, "y", 1): 1}, 0},
		"the rest at the rate":         {map[[2]pace.Limit]int{of("a", 2, "x", 100): 5}, 120},
		"a set is slower":              {map[[2]pace.Limit]int{of("a", 60, "x", 11): 11}, 300},
		"two sets share their Cluster": {map[[2]pace.Limit]int{of("a", 1, "x", 2): 2, of("a", 1, "y", 2): 2}, 180},
		"the largest set goes first":   {map[[2]pace.Limit]int{of("a", 2, "y", 3): 3, of("a", 2, "x", 1): 1}, 120},
		"the slowest Cluster counts":   {map[[2]pace.Limit]int{of("a", 1, "x", 2): 2, of("b", 1, "y", 2): 4}, 180},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(paceOf(test.waiting, 1).LastAfterSeconds).To(Equal(test.seconds))
		})
	}
}
