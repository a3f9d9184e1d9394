// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

func TestChanges(t *testing.T) {
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
		{name: "an entry without fields says nothing", current: content{labels: "a=1"}, fields: entries(metav1.ManagedFieldsEntry{Manager: "heirloom", Operation: apply}, metav1.ManagedFieldsEntry{Manager: "x", FieldsV1: &metav1.FieldsV1{}})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			plan, err := managedfields.New(&metav1.ObjectMeta{ManagedFields: tc.fields}, tc.current.top(), fromOwner(tc.desired.top()), nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(changes(plan)).To(Equal(tc.want))
			Expect(plan.Needed()).To(Equal(len(tc.want) > 0 || tc.ownershipOnly))
		})
	}
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
				reads := 0
				object := &metav1.ObjectMeta{ManagedFields: entries(ours("{'f:metadata': {'f:labels': {'f:z': {}}}}"))}
				plan, err := managedfields.New(object, has, fromOwner(gets), func() (inherit.Object, error) { reads++; return old, nil })
				Expect(err).NotTo(HaveOccurred())
				Expect(plan.Kept()).To(Equal(plan.Kept()))
				Expect(reads).To(Equal(1))
				return words(plan.Kept())
			}
			var inTemplate []string
			for _, name := range tc.want {
				inTemplate = append(inTemplate, "template "+name)
			}
			Expect(kept(tc.has.top(), gets.top(), tc.old.top())).To(Equal(tc.want))
			Expect(kept(tc.has.template(), gets.template(), tc.old.template())).To(Equal(inTemplate))
			Expect(kept(tc.has.top(), gets.top(), tc.old.template())).To(BeEmpty(), "what was in a template is something else")
		})
	}
	plan, err := managedfields.New(&metav1.ObjectMeta{}, content{}.top(), fromOwner(gets.top()), unreadable)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(plan.Kept()).To(BeEmpty())
	NewWithT(t).Expect(planOf(t, machine(content{}), fromOwner(gets.top())).Kept()).To(BeEmpty(), "a create keeps nothing")
}

func unreadable() (inherit.Object, error) { return inherit.Object{}, errors.New("unreadable") }

func TestManagedFieldsThatCannotBeRead(t *testing.T) {
	const broken = "{'k:nonsense': {}}"
	large := strings.Repeat("x", 200<<10)
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
		{name: "they are needed to tell how much room there is", current: content{annotations: "b=" + large}, desired: content{annotations: "c=" + large}, fields: entries(theirs(broken), ours("{'f:metadata': {'f:annotations': {'f:b': {}}}}")), problem: `metadata.managedFields of manager "capi-machineset"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			plan, err := managedfields.New(&metav1.ObjectMeta{ManagedFields: tc.fields}, tc.current.top(), fromOwner(tc.desired.top()), nil)
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

// A control plane may be written in another version than that of our entry, with fields elsewhere. Then they are left to the loop.
func TestAnotherVersionOfTheAPI(t *testing.T) {
	Expect := NewWithT(t).Expect
	const drain = "'f:spec': {'f:deletion': {'f:nodeDrainTimeoutSeconds': {}}}"
	object := machine(content{labels: "a=1"}, ours("{"+drain+"}"))
	current, desired := contentOf(object), content{labels: "a=2", taints: "gpu:NoSchedule"}.top()
	current.Layout.Version = "v1beta1"
	desired.Top.Fields.Seconds[inherit.NodeDrainTimeout] = new(int32(60))
	plan, err := managedfields.New(object, current, fromOwner(desired), func() (inherit.Object, error) { return current, nil })
	Expect(err).NotTo(HaveOccurred())
	Expect(changes(plan)).To(Equal([]string{"metadata.labels a 2"}))
	object.SetAPIVersion("cluster.x-k8s.io/v1beta1")
	result := patched(t, plan, object).GetManagedFields()
	Expect(result).To(HaveLen(1))
	Expect(result[0].APIVersion).To(Equal(version))
	Expect(result[0].FieldsV1.GetRawString()).To(MatchYAML("{'f:metadata': {'f:labels': {'f:a': {}}}, " + drain + "}"))
}

// What the child has no room for is in no plan, and the plan says so. What was inherited and is stale makes room; what is somebody
// else's does not.
func TestPlansFit(t *testing.T) {
	const noteB, old = "{'f:metadata': {'f:annotations': {'f:b': {}}}}", "{'f:metadata': {'f:annotations': {'f:old': {}}}}"
	large := strings.Repeat("x", 200<<10)
	for _, tc := range []struct {
		name             string
		current, desired content
		fields           []metav1.ManagedFieldsEntry
		orphan           bool
		want             []string
		leftOut          string
	}{
		{name: "what is stale makes room", current: content{annotations: "old=" + large}, desired: content{annotations: "b=" + large}, fields: entries(ours(old)), want: []string{`annotation "old"`, `annotation "b"`}},
		{name: "what somebody else owns as well does not", current: content{annotations: "old=" + large}, desired: content{annotations: "b=" + large}, fields: entries(theirs(old), ours(old)), leftOut: `annotation "b": there is no room for it`},
		{name: "nor does what an orphan keeps", current: content{annotations: "old=" + large}, desired: content{annotations: "b=" + large}, fields: entries(ours(old)), orphan: true, leftOut: `annotation "b": there is no room for it`},
		{name: "what is ours keeps its room", current: content{annotations: "b=" + large}, desired: content{annotations: "b=" + large + ",c=1"}, fields: entries(ours(noteB)), want: []string{`annotation "c"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			decided := fromOwner(tc.desired.top())
			if tc.orphan {
				decided = orphan(tc.desired.top())
			}
			plan := planOf(t, machine(tc.current, tc.fields...), decided)
			Expect(words(plan.Changes())).To(Equal(tc.want))
			if tc.leftOut == "" {
				Expect(plan.LeftOut()).NotTo(HaveOccurred())
				return
			}
			Expect(plan.LeftOut()).To(MatchError(ContainSubstring(tc.leftOut)))
		})
	}
}

// A client that updates a child cannot push out what it inherits by filling it: the API server refuses that update instead.
func TestAnUpdateDoesNotPushOut(t *testing.T) {
	Expect := NewWithT(t).Expect
	var many []string
	for i := range 64 {
		many = append(many, fmt.Sprintf("taint-%02d:NoSchedule", i))
	}
	filled, zone := content{taints: strings.Join(many, ",")}, content{taints: "zone:NoSchedule"}
	has := func(old content) func() (inherit.Object, error) {
		return func() (inherit.Object, error) { return old.top(), nil }
	}
	for _, tc := range []struct {
		old     func() (inherit.Object, error)
		decided inherit.Decision
		leftOut bool
	}{
		{old: has(zone), decided: fromOwner(zone.top())},
		{old: has(content{}), decided: fromOwner(zone.top())},
		{old: has(filled), decided: fromOwner(zone.top()), leftOut: true},
		{old: unreadable, decided: fromOwner(zone.top()), leftOut: true}, // nobody knows who was first
		{old: has(zone), decided: orphan(zone.top()), leftOut: true},     // which keeps all that it has
	} {
		plan, err := managedfields.New(&metav1.ObjectMeta{}, filled.top(), tc.decided, tc.old)
		Expect(err).NotTo(HaveOccurred())
		Expect(plan.LeftOut() != nil).To(Equal(tc.leftOut))
		Expect(len(plan.Changes()) == 0).To(Equal(tc.leftOut))
	}
}
