// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

// However many Nodes of one cluster wait, those of another find a worker.
func TestNoClusterTakesAllWorkers(t *testing.T) {
	Expect := NewWithT(t).Expect
	red, blue := types.NamespacedName{Name: "red"}, types.NamespacedName{Name: "blue"}
	s := newShare[types.NamespacedName](2)
	Expect(s.take(red)).To(BeTrue())
	Expect(s.take(red)).To(BeTrue())
	Expect(s.take(red)).To(BeFalse())
	Expect(s.take(blue)).To(BeTrue())
	s.give(red)
	Expect(s.take(red)).To(BeTrue())
	for _, cluster := range []types.NamespacedName{red, red, blue} {
		s.give(cluster)
	}
	Expect(s.taken).To(BeEmpty(), "those that have gone are not remembered")
}
