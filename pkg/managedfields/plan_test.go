// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

const (
	labelA = "{'f:metadata': {'f:labels': {'f:a': {}}}}"
	gpu    = `{'f:spec': {'f:taints': {'k:{"effect":"NoSchedule","key":"gpu"}': {'.': {}, 'f:effect': {}, 'f:key': {}, 'f:propagation': {}}}}}`
)

// changes are those of a plan in short form: "<place> <name> <value>".
func changes(plan *managedfields.Plan) []string {
	var all []string
	for _, change := range plan.Changes() {
		value := fmt.Sprint(change.Value)
		if t, ok := change.Value.(clusterv1.MachineTaint); ok {
			value = t.Value + "@" + string(t.Propagation)
		}
		all = append(all, strings.Join([]string{change.Place, change.Name, value}, " "))
	}
	return all
}

func TestChanges(t *testing.T) {
	const update = metav1.ManagedFieldsOperationUpdate
	for _, tc := range []struct {
		name             string
		current, desired content
		fields           []metav1.ManagedFieldsEntry
		want             []string
		// ownershipOnly says that something is to be written although the content stays.
		ownershipOnly bool
	}{
		{name: "nothing to inherit, nothing to do", current: content{labels: "mine=1"}},
		{name: "what is missing is added", desired: content{labels: "a=1", annotations: "b=2", taints: "gpu:NoSchedule"}, want: []string{"metadata.labels a 1", "metadata.annotations b 2", "spec.taints gpu:NoSchedule @Always"}},
		{name: "changes come in order of their names", desired: content{labels: "c=1,a=1,b=1"}, want: []string{"metadata.labels a 1", "metadata.labels b 1", "metadata.labels c 1"}},
		{name: "what is there with the right value belongs to the one that brought it", current: content{labels: "a=1", taints: "gpu:NoSchedule"}, desired: content{labels: "a=1", taints: "gpu:NoSchedule"}, fields: entries(theirs(labelA))},
		{name: "what is ours already is left as it is", current: content{labels: "a=1"}, desired: content{labels: "a=1"}, fields: entries(ours(labelA))},
		{name: "another value is overruled", current: content{labels: "a=2"}, desired: content{labels: "a=1"}, fields: entries(theirs(labelA)), want: []string{"metadata.labels a 1"}},
		{name: "another propagation of a taint is overruled", current: content{taints: "gpu:NoSchedule@OnInitialization"}, desired: content{taints: "gpu:NoSchedule"}, want: []string{"spec.taints gpu:NoSchedule @Always"}},
		{name: "what is ours and no longer declared goes", current: content{labels: "a=1,mine=1"}, fields: entries(ours(labelA)), want: []string{"metadata.labels a <nil>"}},
		{name: "a taint that is ours and no longer declared goes", current: content{taints: "gpu:NoSchedule"}, fields: entries(ours(gpu)), want: []string{"spec.taints gpu:NoSchedule <nil>"}},
		{name: "what somebody else owns too stays, and is ours no more", current: content{labels: "a=1"}, fields: entries(theirs(labelA), ours(labelA)), ownershipOnly: true},
		{name: "what somebody else owns is none of our business", current: content{labels: "a=1"}, fields: entries(theirs(labelA))},
		{name: "an update by a manager of our name is not our apply", current: content{labels: "a=1"}, fields: entries(managed("heirloom", update, labelA))},
		{name: "what is ours and gone from the object is ours no more", fields: entries(ours(labelA)), ownershipOnly: true},
		{name: "what is ours and was removed comes back", desired: content{labels: "a=1"}, fields: entries(ours(labelA)), want: []string{"metadata.labels a 1"}},
		{name: "the same key with another effect is another taint", current: content{taints: "gpu:NoExecute"}, desired: content{taints: "gpu:NoSchedule"}, want: []string{"spec.taints gpu:NoSchedule @Always"}},
		{name: "of two taints with one key and effect, the first counts", desired: content{taints: "gpu=1:NoSchedule,gpu=2:NoSchedule"}, want: []string{"spec.taints gpu:NoSchedule 1@Always"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			plan := newPlan(t, tc.current.top(), tc.desired.top(), tc.fields)
			Expect(changes(plan)).To(Equal(tc.want))
			Expect(plan.Needed()).To(Equal(len(tc.want) > 0 || tc.ownershipOnly))
		})
	}
}

func TestChangesOfATemplate(t *testing.T) {
	Expect := NewWithT(t).Expect
	desired := content{labels: "a=1", annotations: "b=2", taints: "gpu:NoSchedule"}
	plan := newPlan(t, content{}.template(), desired.template(), nil)
	Expect(changes(plan)).To(Equal([]string{
		"spec.template.metadata.labels a 1", "spec.template.metadata.annotations b 2", "spec.template.spec.taints gpu:NoSchedule @Always",
	}))
	Expect(words(plan.Changes())).To(Equal([]string{`template label "a"`, `template annotation "b"`, `template taint "gpu:NoSchedule"`}))
	Expect(words(newPlan(t, content{}.top(), desired.top(), nil).Changes())).To(Equal([]string{`label "a"`, `annotation "b"`, `taint "gpu:NoSchedule"`}))
	Expect(newPlan(t, content{}.top(), desired.template(), nil).Needed()).To(BeFalse(), "an object without a template gets none")
}

// words are changes as a warning names them.
func words(changes []managedfields.Change) []string {
	var all []string
	for _, change := range changes {
		all = append(all, change.String())
	}
	return all
}

// What an update takes away or changes, and the plan puts back, is kept.
func TestKept(t *testing.T) {
	gets := content{"a=1", "b=2", "gpu=1:NoSchedule"}
	for _, tc := range []struct {
		name     string
		old, has content
		want     []string
	}{
		{name: "what is not there any more", old: gets, has: content{labels: "z=1"}, want: []string{`label "a"`, `annotation "b"`, `taint "gpu:NoSchedule"`}},
		{name: "what has another value now", old: gets, has: content{"a=2", "b=3", "gpu=2:NoSchedule"}, want: []string{`label "a"`, `annotation "b"`, `taint "gpu:NoSchedule"`}},
		{name: "what had another value before is not", old: content{"a=2", "b=3", "gpu=2:NoSchedule"}},
		{name: "nor what was elsewhere", old: content{labels: "b=2", annotations: "a=1", taints: "gpu=1:NoExecute"}},
		{name: "nor what is as it was", old: gets, has: gets},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			kept := func(has, gets, old inherit.Object) []string {
				plan, err := managedfields.New(child(entries(ours("{'f:metadata': {'f:labels': {'f:z': {}}}}"))), has, fromOwner(gets), func() (inherit.Object, error) { return old, nil })
				Expect(err).NotTo(HaveOccurred())
				return words(plan.Kept())
			}
			Expect(kept(tc.has.top(), gets.top(), tc.old.top())).To(Equal(tc.want))
			Expect(kept(tc.has.top(), gets.top(), tc.old.template())).To(BeEmpty(), "what was in the template is something else")
			var inTemplate []string
			for _, name := range tc.want {
				inTemplate = append(inTemplate, "template "+name)
			}
			Expect(kept(tc.has.template(), gets.template(), tc.old.template())).To(Equal(inTemplate))
		})
	}
	plan, err := managedfields.New(child(nil), content{}.top(), fromOwner(gets.top()), func() (inherit.Object, error) { return inherit.Object{}, errors.New("unreadable") })
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(plan.Kept()).To(BeEmpty())
	NewWithT(t).Expect(newPlan(t, content{}.top(), gets.top(), nil).Kept()).To(BeEmpty(), "a create keeps nothing")
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
