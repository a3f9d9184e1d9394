// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// What eight times as many labels cost is eight times as much, and not sixty-four times: API servers wait two seconds for an
// answer, however many labels somebody declares. What is counted are allocations, which are the same on every machine.
func TestCostGrowsWithTheLabels(t *testing.T) {
	for name, size := range map[string]func(n int) func(){
		"labels that come": func(n int) func() {
			return planning(t, nil, many(n), nil)
		},
		"labels that others have already": func(n int) func() {
			return planning(t, many(n), many(n), entries(theirs(fieldsOf(n))))
		},
		"labels that go": func(n int) func() {
			return planning(t, many(n), nil, entries(ours(fieldsOf(n)), theirs("'f:metadata': {'f:annotations': {'f:x': {}}}")))
		},
		"labels that go and that others have, too": func(n int) func() {
			return planning(t, many(n), nil, entries(ours(fieldsOf(n)), theirs(fieldsOf(n))))
		},
		"labels that were taken away": func(n int) func() {
			return func() {
				had := inherit.Object{Layout: content{}.top().Layout, Top: inherit.Content{Labels: many(n)}}
				plan, err := managedfields.New(child(nil), content{}.top(), fromOwner(had), func() (inherit.Object, error) { return had, nil })
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				NewWithT(t).Expect(plan.Kept()).To(HaveLen(n))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			few, eightfold := testing.AllocsPerRun(1, size(500)), testing.AllocsPerRun(1, size(4000))
			NewWithT(t).Expect(eightfold/few).To(BeNumerically("<", 12), "%v allocations for 500 labels, %v for 4000", few, eightfold)
		})
	}
}

// A forged object may have managed fields of very many managers, beside one with very many fields.
func TestCostGrowsWithTheManagers(t *testing.T) {
	size := func(n int) float64 {
		const creator = "before-first-apply"
		fields := slices.Repeat(entries(metav1.ManagedFieldsEntry{Manager: creator, Operation: metav1.ManagedFieldsOperationUpdate}), n)
		fields[0] = managed(creator, metav1.ManagedFieldsOperationUpdate, "{"+membersOf(n)+"}") // of the top, which is what a union copies
		plan := planning(t, nil, nil, fields)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		plan()
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	few, eightfold := size(250), size(2000)
	NewWithT(t).Expect(eightfold/few).To(BeNumerically("<", 16), "%v bytes for 250 managers and fields, %v for 2000", few, eightfold)
}

// planning computes the plan and the patch of a Machine that has some labels and should inherit others.
func planning(t *testing.T, has, inherits map[string]string, fields []metav1.ManagedFieldsEntry) func() {
	t.Helper()
	raw := document(t, "metadata: {name: x}", fields)
	current, desired := content{}.top(), content{}.top()
	current.Top.Labels, desired.Top.Labels = has, inherits
	return func() {
		plan, err := managedfields.New(child(fields), current, fromOwner(desired), nil)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		operations(t, plan, raw)
	}
}

func many(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprintf("label-%d", i)] = "x"
	}
	return labels
}

// fieldsOf are the managed fields of that many labels.
func fieldsOf(n int) string {
	return "'f:metadata': {'f:labels': {" + membersOf(n) + "}}"
}

func membersOf(n int) string {
	var all strings.Builder
	for key := range many(n) {
		fmt.Fprintf(&all, "'f:%s': {}, ", key)
	}
	return all.String()
}
