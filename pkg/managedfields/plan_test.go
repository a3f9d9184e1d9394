// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

const (
	labelA = "{'f:metadata': {'f:labels': {'f:a': {}}}}"
	gpu    = `{'f:spec': {'f:taints': {'k:{"effect":"NoSchedule","key":"gpu"}': {'.': {}, 'f:effect': {}, 'f:key': {}, 'f:propagation': {}}}}}`
)

func TestChanges(t *testing.T) {
	const update = metav1.ManagedFieldsOperationUpdate
	for _, tc := range []struct {
		name             string
		current, desired content
		fields           []metav1.ManagedFieldsEntry
		want             []managedfields.Change
		// ownershipOnly says that something is to be written although the content stays.
		ownershipOnly bool
	}{
		{name: "nothing to inherit, nothing to do", current: content{labels: "mine=1"}},
		{name: "what is missing is added", desired: content{labels: "a=1", annotations: "b=2", taints: "gpu:NoSchedule"}, want: []managedfields.Change{
			{Place: "metadata.labels", Name: "a", Value: "1"}, {Place: "metadata.annotations", Name: "b", Value: "2"},
			{Place: "spec.taints", Name: "gpu:NoSchedule", Value: declared("gpu:NoSchedule")[0]},
		}},
		{name: "changes come in order of their names", desired: content{labels: "c=1,a=1,b=1"}, want: []managedfields.Change{
			{Place: "metadata.labels", Name: "a", Value: "1"}, {Place: "metadata.labels", Name: "b", Value: "1"}, {Place: "metadata.labels", Name: "c", Value: "1"},
		}},
		{name: "what is there with the right value belongs to the one that brought it", current: content{labels: "a=1", taints: "gpu:NoSchedule"}, desired: content{labels: "a=1", taints: "gpu:NoSchedule"}, fields: entries(theirs(labelA))},
		{name: "what is ours already is left as it is", current: content{labels: "a=1"}, desired: content{labels: "a=1"}, fields: entries(ours(labelA))},
		{name: "another value is overruled", current: content{labels: "a=2"}, desired: content{labels: "a=1"}, fields: entries(theirs(labelA)), want: []managedfields.Change{{Place: "metadata.labels", Name: "a", Value: "1"}}},
		{name: "another propagation of a taint is overruled", current: content{taints: "gpu:NoSchedule@OnInitialization"}, desired: content{taints: "gpu:NoSchedule"}, want: []managedfields.Change{{Place: "spec.taints", Name: "gpu:NoSchedule", Value: declared("gpu:NoSchedule")[0]}}},
		{name: "what is ours and no longer declared goes", current: content{labels: "a=1,mine=1"}, fields: entries(ours(labelA)), want: []managedfields.Change{{Place: "metadata.labels", Name: "a"}}},
		{name: "a taint that is ours and no longer declared goes", current: content{taints: "gpu:NoSchedule"}, fields: entries(ours(gpu)), want: []managedfields.Change{{Place: "spec.taints", Name: "gpu:NoSchedule"}}},
		{name: "what somebody else owns too stays, and is ours no more", current: content{labels: "a=1"}, fields: entries(theirs(labelA), ours(labelA)), ownershipOnly: true},
		{name: "what somebody else owns is none of our business", current: content{labels: "a=1"}, fields: entries(theirs(labelA))},
		{name: "an update by a manager of our name is not our apply", current: content{labels: "a=1"}, fields: entries(managed("heirloom", update, labelA))},
		{name: "what is ours and gone from the object is ours no more", fields: entries(ours(labelA)), ownershipOnly: true},
		{name: "what is ours and was removed comes back", desired: content{labels: "a=1"}, fields: entries(ours(labelA)), want: []managedfields.Change{{Place: "metadata.labels", Name: "a", Value: "1"}}},
		{name: "the same key with another effect is another taint", current: content{taints: "gpu:NoExecute"}, desired: content{taints: "gpu:NoSchedule"}, want: []managedfields.Change{{Place: "spec.taints", Name: "gpu:NoSchedule", Value: declared("gpu:NoSchedule")[0]}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			plan := newPlan(t, tc.current.top(), tc.desired.top(), tc.fields)
			Expect(plan.Changes()).To(Equal(tc.want))
			Expect(plan.Needed()).To(Equal(len(tc.want) > 0 || tc.ownershipOnly))
		})
	}
}

func TestChangesOfATemplate(t *testing.T) {
	Expect := NewWithT(t).Expect
	desired := content{labels: "a=1", taints: "gpu:NoSchedule"}.template()
	Expect(newPlan(t, content{}.template(), desired, nil).Changes()).To(Equal([]managedfields.Change{
		{Place: "spec.template.metadata.labels", Name: "a", Value: "1"},
		{Place: "spec.template.spec.taints", Name: "gpu:NoSchedule", Value: declared("gpu:NoSchedule")[0]},
	}))
	Expect(newPlan(t, content{}.top(), desired, nil).Needed()).To(BeFalse(), "an object without a template gets none")
}

func TestManagedFieldsThatCannotBeRead(t *testing.T) {
	const broken = "{'k:nonsense': {}}"
	for _, tc := range []struct {
		name             string
		current, desired content
		fields           []metav1.ManagedFieldsEntry
		problem          string
	}{
		{name: "our own are always needed", fields: entries(ours(broken)), problem: `manager "heirloom"`},
		{name: "somebody else's are not needed to add", desired: content{labels: "a=1"}, fields: entries(theirs(broken))},
		{name: "nor where nothing changes", current: content{labels: "a=1"}, desired: content{labels: "a=1"}, fields: entries(ours(labelA), theirs(broken))},
		{name: "they are needed to tell whether a value may go", current: content{labels: "a=1"}, fields: entries(ours(labelA), theirs(broken)), problem: `manager "capi-machineset"`},
		{name: "they are needed to take a value from them", current: content{labels: "a=2"}, desired: content{labels: "a=1"}, fields: entries(theirs(broken)), problem: `manager "capi-machineset"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			plan, err := managedfields.New(child(tc.fields), tc.current.top(), fromOwner(tc.desired.top()), nil)
			if err == nil {
				_, err = plan.Patch([]byte(`{"metadata":{"labels":{"a":"2"}}}`), version, now)
			}
			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred())
				return
			}
			Expect(err).To(MatchError(ContainSubstring(tc.problem)))
		})
	}
}

func TestEmptyManagedFieldsAreNothing(t *testing.T) {
	Expect := NewWithT(t).Expect
	entry := ours(labelA)
	entry.FieldsV1 = nil
	Expect(newPlan(t, content{labels: "a=1"}.top(), content{}.top(), entries(entry)).Needed()).To(BeFalse())
	entry.FieldsV1 = &metav1.FieldsV1{}
	Expect(newPlan(t, content{labels: "a=1"}.top(), content{}.top(), entries(entry)).Needed()).To(BeFalse())
}

func TestIsOurs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		entry metav1.ManagedFieldsEntry
		want  bool
	}{
		{name: "what we applied is ours", entry: ours(labelA), want: true},
		{name: "what another manager applied is not", entry: theirs(labelA)},
		{name: "what an update by our name wrote is not", entry: managed("heirloom", metav1.ManagedFieldsOperationUpdate, labelA)},
		{name: "what was applied to a subresource is not", entry: func() metav1.ManagedFieldsEntry { e := ours(labelA); e.Subresource = "status"; return e }()},
		{name: "the dry runs of the detector are not", entry: managed("heirloom-probe", metav1.ManagedFieldsOperationApply, labelA)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			NewWithT(t).Expect(managedfields.IsOurs(tc.entry)).To(Equal(tc.want))
		})
	}
}

func TestChangeInWords(t *testing.T) {
	for place, want := range map[string]string{
		"metadata.labels":                    `label "x"`,
		"metadata.annotations":               `annotation "x"`,
		"spec.taints":                        `taint "x"`,
		"spec.template.metadata.labels":      `template label "x"`,
		"spec.template.metadata.annotations": `template annotation "x"`,
		"spec.template.spec.taints":          `template taint "x"`,
	} {
		NewWithT(t).Expect(managedfields.Change{Place: place, Name: "x"}.String()).To(Equal(want))
	}
}

func TestCarried(t *testing.T) {
	taint := declared("gpu=1:NoSchedule")[0]
	has := content{labels: "a=1", annotations: "b=2", taints: "gpu=1:NoSchedule"}
	for _, tc := range []struct {
		name   string
		change managedfields.Change
		top    bool
		below  bool
	}{
		{name: "a label with its value", change: managedfields.Change{Place: "metadata.labels", Name: "a", Value: "1"}, top: true},
		{name: "a label with another value", change: managedfields.Change{Place: "metadata.labels", Name: "a", Value: "2"}},
		{name: "a label that is an annotation", change: managedfields.Change{Place: "metadata.annotations", Name: "a", Value: "1"}},
		{name: "an annotation", change: managedfields.Change{Place: "metadata.annotations", Name: "b", Value: "2"}, top: true},
		{name: "a taint with its value", change: managedfields.Change{Place: "spec.taints", Name: "gpu:NoSchedule", Value: taint}, top: true},
		{name: "a taint with another value", change: managedfields.Change{Place: "spec.taints", Name: "gpu:NoSchedule", Value: declared("gpu=2:NoSchedule")[0]}},
		{name: "a label of the template", change: managedfields.Change{Place: "spec.template.metadata.labels", Name: "a", Value: "1"}, below: true},
		{name: "a taint of the template", change: managedfields.Change{Place: "spec.template.spec.taints", Name: "gpu:NoSchedule", Value: taint}, below: true},
		{name: "a removal brings nothing", change: managedfields.Change{Place: "metadata.labels", Name: "a"}},
		{name: "an unknown place", change: managedfields.Change{Place: "status.labels", Name: "a", Value: "1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			NewWithT(t).Expect(managedfields.Carried(has.top())(tc.change)).To(Equal(tc.top))
			NewWithT(t).Expect(managedfields.Carried(has.template())(tc.change)).To(Equal(tc.below))
		})
	}
}
