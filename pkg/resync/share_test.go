// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// However many objects of one kind wait, those of another find a worker.
func TestNoKindTakesAllWorkers(t *testing.T) {
	Expect := NewWithT(t).Expect
	red, blue := schema.GroupKind{Kind: "Red"}, schema.GroupKind{Kind: "Blue"}
	s := newShare(2)
	Expect(s.take(red)).To(BeTrue())
	Expect(s.take(red)).To(BeTrue())
	Expect(s.take(red)).To(BeFalse())
	Expect(s.take(blue)).To(BeTrue())
	s.give(red)
	Expect(s.take(red)).To(BeTrue())
	for _, kind := range []schema.GroupKind{red, red, blue} {
		s.give(kind)
	}
	Expect(s.taken).To(BeEmpty(), "those that have gone are not remembered")
}
