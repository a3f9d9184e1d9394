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

const told = "{'f:metadata': {'f:annotations': {'f:capacity.cluster-autoscaler.kubernetes.io/labels': {}}}}"

// toldTop is an object with that annotation.
func toldTop(value string) inherit.Object {
	object := content{}.top()
	if value != "" {
		object.Top.Annotations = map[string]string{inherit.CapacityLabelsAnnotation: value}
	}
	return object
}

// tells is what such an object inherits that has no owner.
func tells(value string) inherit.Decision {
	object := content{}.top()
	object.Top = object.Top.WithYielding(toldTop(value).Top.Annotations)
	return orphan(object)
}

// What cluster-autoscaler is told is ours for as long as nobody else says it, too.
func TestYielding(t *testing.T) {
	const update = metav1.ManagedFieldsOperationUpdate
	operator := after(managed("kubectl", update, told), time.Minute)
	for _, tc := range []struct {
		name         string
		has, want    string
		fields       []metav1.ManagedFieldsEntry
		after        string
		needed, ours bool
	}{
		{name: "what is missing is added", want: "a=1", after: "a=1", needed: true, ours: true},
		{name: "ours follows what is to be told", has: "a=1", want: "a=2", fields: entries(ours(told)), after: "a=2", needed: true, ours: true},
		{name: "ours goes", has: "a=1", fields: entries(ours(told)), needed: true},
		{name: "ours stays as it is", has: "a=1", want: "a=1", fields: entries(ours(told)), after: "a=1", ours: true},
		{name: "the operator's stays", has: "mine=1", want: "a=1", fields: entries(operator), after: "mine=1"},
		{name: "so does one that is the same", has: "a=1", want: "a=1", fields: entries(operator), after: "a=1"},
		{name: "so does one that nobody owns", has: "mine=1", want: "a=1", fields: entries(theirs(labelB)), after: "mine=1"},
		{name: "ours that somebody applies too is theirs", has: "a=1", want: "a=1", fields: entries(ours(told), theirs(told)), after: "a=1", needed: true},
		{name: "also where another is to be told", has: "a=1", want: "a=2", fields: entries(ours(told), theirs(told)), after: "a=1", needed: true},
		{name: "also where nothing is to be told", has: "a=1", fields: entries(ours(told), theirs(told)), after: "a=1", needed: true},
		{name: "once it is gone, ours comes back", want: "a=1", fields: entries(theirs(labelB)), after: "a=1", needed: true, ours: true},
		{name: "a restored one is ours again", has: "a=1", want: "a=1", fields: entries(managed("velero", update, told)), after: "a=1", needed: true, ours: true},
		{
			name: "one of the create that somebody applies since is theirs", has: "a=1", want: "a=1",
			fields: entries(theirs(told), managed("velero", update, told)), after: "a=1",
		},
		{name: "a restored one that says something else is not", has: "a=1", want: "a=2", fields: entries(managed("velero", update, told)), after: "a=1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, trim := range map[string]func([]metav1.ManagedFieldsEntry, time.Time) []metav1.ManagedFieldsEntry{
				"in admission": func(fields []metav1.ManagedFieldsEntry, _ time.Time) []metav1.ManagedFieldsEntry { return fields },
				"in the loop":  trimmed,
			} {
				Expect := NewWithT(t).Expect
				age := now.Add(-time.Hour)
				object := &metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: age}, ManagedFields: trim(tc.fields, age)}
				plan, err := managedfields.New(object, toldTop(tc.has), tells(tc.want), nil)
				Expect(err).NotTo(HaveOccurred())
				Expect(plan.Needed()).To(Equal(tc.needed), name)
				Expect(changed(plan, tc.has)).To(Equal(tc.after), name)
				if !tc.needed {
					continue
				}
				raw := document(t, "{metadata: {annotations: {x: y}}}", tc.fields)
				if tc.has != "" {
					raw = document(t, "{metadata: {annotations: {capacity.cluster-autoscaler.kubernetes.io/labels: "+tc.has+"}}}", tc.fields)
				}
				var owned bool
				for _, entry := range managedFieldsOf(t, patched(t, plan, raw)) {
					owned = owned || managedfields.IsOurs(entry)
				}
				Expect(owned).To(Equal(tc.ours), name)
			}
		})
	}
}

// changed is the annotation after the plan.
func changed(plan *managedfields.Plan, before string) string {
	for _, change := range plan.Changes() {
		before, _ = change.Value.(string)
	}
	return before
}

// The loop gives up by patch: one in which nothing else happens.
func TestWhatYieldsIsGivenUpByPatch(t *testing.T) {
	Expect := NewWithT(t).Expect
	object := created(24*time.Hour, ours(told), theirs(told))
	removal, err := managedfields.NewRemoval(object, toldTop("a=1"), tells("a=2"))
	Expect(err).NotTo(HaveOccurred())
	Expect(removal.Needed()).To(BeTrue())
	Expect(removal.Changes()).To(BeEmpty())
	raw := document(t, "{metadata: {annotations: {capacity.cluster-autoscaler.kubernetes.io/labels: a=1}}}", object.ManagedFields)
	object.ManagedFields = managedFieldsOf(t, patched(t, removal, raw))
	Expect(object.ManagedFields).To(ConsistOf(HaveField("Manager", "capi-machineset")))
	plan, err := managedfields.New(object, toldTop("a=1"), tells("a=2"), nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(plan.Needed()).To(BeFalse())
}

// What a topology declares by the same name is the operator's word, and no suggestion.
func TestWhatIsDeclaredDoesNotYield(t *testing.T) {
	Expect := NewWithT(t).Expect
	desired := tells("")
	desired.Desired.Top = toldTop("declared=1").Top.WithYielding(toldTop("a=1").Top.Annotations)
	plan := planOf(t, toldTop("mine=1"), desired, entries(theirs(told)))
	Expect(changed(plan, "mine=1")).To(Equal("declared=1"))
}

// An object that is restored before its owner is known tells cluster-autoscaler something already. What its owner brought
// before is adopted all the same, and kept until then.
func TestWhatIsToldIsFromNoOwner(t *testing.T) {
	Expect := NewWithT(t).Expect
	restored := managed("velero", metav1.ManagedFieldsOperationUpdate, labelA)
	age := now.Add(-time.Hour)
	object := &metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: age}, ManagedFields: trimmed(entries(ours(told), restored), age)}
	has, wants := toldTop("t=1"), tells("t=1")
	has.Top.Labels, wants.Desired.Top.Labels, wants.Outcome = pairs("a=1"), pairs("a=1"), inherit.Inherits
	plan, err := managedfields.New(object, has, wants, nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(plan.Adopts()).To(BeTrue())

	both := ours("{'f:metadata': {'f:labels': {'f:a': {}}, 'f:annotations': {'f:capacity.cluster-autoscaler.kubernetes.io/labels': {}}}}")
	Expect(planOf(t, has, tells(""), entries(both)).Changes()).To(HaveLen(1), "only what cluster-autoscaler is told goes")
}
