// SPDX-License-Identifier: Apache-2.0

package pace_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/pace"
)

func TestNodesPassAtTheirGroupsRate(t *testing.T) {
	Expect := NewWithT(t).Expect
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	pacer := pace.New[string](2, func() time.Time { return now })
	pass := func(group, node string) bool {
		ok, again, _ := pacer.Pass(group, node)
		Expect(ok || again == 30*time.Second).To(BeTrue(), "whoever waits asks again when the next may pass")
		return ok
	}

	Expect(pass("a", "n1")).To(BeTrue(), "the first need not wait")
	Expect(pass("a", "n1")).To(BeTrue(), "nor does it wait to try again")
	Expect(pass("a", "n2")).To(BeFalse())
	Expect(pass("a", "n3")).To(BeFalse())
	Expect(pass("b", "n1")).To(BeTrue(), "another group has a rate of its own")
	Expect(pacer.Waiting()).To(Equal(2))

	now = now.Add(30 * time.Second)
	ok, _, progress := pacer.Pass("a", "n2")
	Expect(ok).To(BeTrue())
	Expect(progress).To(Equal(pace.Progress{Passed: 2, Waiting: 1}))
	Expect(pass("a", "n3")).To(BeFalse())

	pacer.Forget("n3")
	Expect(pacer.Waiting()).To(BeZero(), "the owner has changed its mind")
	Expect(pass("a", "n4")).To(BeFalse(), "which does not make the next one faster")
}

// However often Nodes ask, no more of them pass than the rate allows.
func TestTheRateHoldsOverAnHour(t *testing.T) {
	Expect := NewWithT(t).Expect
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	pacer := pace.New[string](3, func() time.Time { return now })
	passed := map[string]bool{}
	for range 60 * 60 {
		now = now.Add(time.Second)
		for n := range 500 {
			node := fmt.Sprint("n", n)
			if passed[node] {
				continue
			}
			if ok, _, _ := pacer.Pass("md", node); ok {
				passed[node] = true
			}
		}
	}
	Expect(len(passed)).To(BeNumerically("~", 180, 1))
}

func TestWithoutARateAllPass(t *testing.T) {
	Expect := NewWithT(t).Expect
	pacer := pace.New[string](0, time.Now)
	for n := range 100 {
		ok, _, _ := pacer.Pass("md", fmt.Sprint(n))
		Expect(ok).To(BeTrue())
	}
	Expect(pacer.Waiting()).To(BeZero())
}
