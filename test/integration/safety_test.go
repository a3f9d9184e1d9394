// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// With ten thousand labels, the API server is so busy that the call of a webhook exceeds two seconds. The write passes nevertheless, and
// the object gets the labels later.
func TestTenThousandLabels(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{})
	f := s.settle("many", declared())
	many := map[string]string{}
	for i := range 10_000 {
		many[fmt.Sprintf("label-%d", i)] = "x"
	}
	s.get(f.md)
	s.update(f.md, func() {
		for key, value := range many {
			f.md.Spec.Template.Labels[key] = value
		}
	})
	set := stage.MachineSet(f.md, "more")
	s.create(set)
	s.Eventually(func(g Gomega) {
		s.get(set)
		g.Expect(len(set.Spec.Template.Labels)).To(BeNumerically(">", 10_000))
	}).WithTimeout(5 * patience).WithPolling(time.Second).Should(Succeed())
	s.get(f.md)
	s.update(f.md, func() {
		for key := range many {
			delete(f.md.Spec.Template.Labels, key)
		}
	})
	s.Eventually(func(g Gomega) {
		s.get(set)
		g.Expect(len(set.Spec.Template.Labels)).To(BeNumerically("<", 10))
	}).WithTimeout(5 * patience).WithPolling(time.Second).Should(Succeed())
}
