// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

func TestAdoption(t *testing.T) {
	restored := managed("velero", update, labelsAB)
	status := restored
	status.Subresource = "status"
	ab, a := content{labels: "a=1,b=2"}, content{labels: "a=1"}
	for _, tc := range []struct {
		name             string
		age              time.Duration // an hour, if none is given
		creating         bool
		fields           []metav1.ManagedFieldsEntry
		current, desired content
		adopts           bool
	}{
		{name: "a restored object that carries all is adopted", fields: entries(restored), current: ab, desired: ab, adopts: true},
		{name: "only what the owner declares is", fields: entries(restored), current: ab, desired: a, adopts: true},
		{name: "so is one that is just being created", creating: true, fields: entries(restored), current: a, desired: a, adopts: true},
		{name: "so is one that was applied since", fields: entries(theirs(labelA), restored), current: a, desired: a, adopts: true},
		{name: "so is one that has lost its managed fields", current: a, desired: a, adopts: true},
		{name: "and had them made up at the first apply", age: 48 * time.Hour, fields: entries(theirs(labelB), managed("before-first-apply", update, labelA)), current: a, desired: a, adopts: true},
		{name: "an object that lacks something is no copy", fields: entries(restored), current: a, desired: content{labels: "a=1,c=3"}},
		{name: "nor is one with another value", fields: entries(restored), current: content{labels: "a=1,b=3"}, desired: ab},
		{name: "what was set later is its writer's", age: 2 * time.Hour, fields: entries(restored), current: a, desired: a},
		{name: "what was applied is its applier's", fields: entries(theirs(labelA)), current: a, desired: a},
		{name: "what a status has is nobody's business", fields: entries(status), current: a, desired: a},
		{name: "where something is ours already, the rest is not", fields: entries(restored, ours(labelB)), current: ab, desired: ab},
		{name: "nothing declared, nothing adopted", fields: entries(restored), current: a},
		{name: "a request without managed fields and without an age tells nothing", creating: true, current: a, desired: a},
	} {
		t.Run(tc.name, func(t *testing.T) {
			age := max(tc.age, time.Hour)
			for _, fields := range [][]metav1.ManagedFieldsEntry{tc.fields, trimmed(tc.fields, now.Add(-age))} { // in admission, and in the loop
				o := created(age, machine(tc.current), fields...)
				if tc.creating {
					o.SetCreationTimestamp(metav1.Time{})
				}
				plan := planOf(t, o, fromOwner(tc.desired.top()))
				NewWithT(t).Expect(plan.Adopts()).To(Equal(tc.adopts))
				NewWithT(t).Expect(tc.adopts && len(plan.Changes()) > 0).To(BeFalse(), "an adoption changes no content")
			}
		})
	}
}

// other stands for entries of which nothing is kept but when they changed.
func other(last metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Time: last.Time}
}

func trimmed(fields []metav1.ManagedFieldsEntry, created time.Time) []metav1.ManagedFieldsEntry {
	return managedfields.Trimmed(fields, created, inherit.CapacityAnnotations)
}

// The cache keeps enough to tell whether there may be something to adopt, and when somebody last changed the object.
func TestTrimmed(t *testing.T) {
	Expect := NewWithT(t).Expect
	age := now.Add(-time.Hour)
	restored, later := managed("velero", update, labelA), after(managed("kubectl", update, labelB), time.Minute)
	for _, tc := range []struct{ all, kept []metav1.ManagedFieldsEntry }{
		{entries(theirs(labelA), restored, later, ours(labelA)), entries(ours(labelA), other(later))},
		{entries(restored, later, ours(gpu)), entries(restored, ours(gpu), other(later))}, // taints may be the object's own
		{entries(theirs(told)), entries(theirs(told))},
		{entries(theirs(labelA)), entries(other(theirs(labelA)))}, // none is not the same as none of interest
	} {
		kept := trimmed(tc.all, age)
		Expect(kept).To(Equal(tc.kept))
		Expect(managedfields.LastChanged(kept)).To(Equal(managedfields.LastChanged(tc.all)))
	}
	Expect(trimmed(nil, age)).To(BeEmpty())
	status := after(restored, time.Hour)
	status.Subresource = "status"
	Expect(managedfields.LastChanged(entries(restored, later, status, after(ours(labelA), time.Hour)))).To(Equal(later.Time.Time), "by somebody else, and not the status")
	Expect(managedfields.LastChanged(nil)).To(BeZero())
}

const told = "{'f:metadata': {'f:annotations': {'f:capacity.cluster-autoscaler.kubernetes.io/labels': {}}}}"
