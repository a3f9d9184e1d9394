// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// Kept lists the entries that an update removes or changes, and that the plan restores.
func TestKept(t *testing.T) {
	gets := content{"c=3,a=1", "b=2", "gpu=1:NoSchedule"}
	for _, tc := range []struct {
		name     string
		old, has content
		want     []string
	}{
		{name: "what is not there any more", old: gets, has: content{labels: "z=1"}, want: []string{`label "a"`, `label "c"`, `annotation "b"`, `taint "gpu:NoSchedule"`}},
		{name: "what has another value now", old: gets, has: content{"c=4,a=2", "b=3", "gpu=2:NoSchedule"}, want: []string{`label "a"`, `label "c"`, `annotation "b"`, `taint "gpu:NoSchedule"`}},
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
			Expect(kept(tc.has.top(), gets.top(), tc.old.template())).To(BeEmpty(), "entries of a template are other entries")
		})
	}
	plan, err := managedfields.New(&metav1.ObjectMeta{}, content{}.top(), fromOwner(gets.top()), unreadable)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(plan.Kept()).To(BeEmpty())
	NewWithT(t).Expect(planOf(t, machine(content{}), fromOwner(gets.top())).Kept()).To(BeEmpty(), "a create keeps nothing")
}

func unreadable() (inherit.Object, error) { return inherit.Object{}, errors.New("unreadable") }

func TestUnreadableManagedFields(t *testing.T) {
	const broken = "{'k:nonsense': {}}"
	for _, tc := range []struct {
		name             string
		current, desired content
		fields           []metav1.ManagedFieldsEntry
		problem          string
	}{
		{name: "our own are always needed", fields: entries(ours(broken)), problem: `manager "heirloom"`},
		{name: "somebody else's are not needed to add", desired: content{labels: "a=1"}, fields: entries(theirs(broken))},
		{name: "they are needed to tell whether a value may go", current: content{labels: "a=1"}, fields: entries(ours(labelA), theirs(broken)), problem: `manager "capi-machineset"`},
		{name: "they are needed to take a value from them", current: content{labels: "a=2"}, desired: content{labels: "a=1"}, fields: entries(theirs(broken)), problem: `manager "capi-machineset"`},
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

// A client may write a control plane in another version than our managedFields entry, with fields at other paths. The plan leaves these
// fields to the loop.
func TestFieldsOfAnotherVersionAreLeftToTheLoop(t *testing.T) {
	Expect := NewWithT(t).Expect
	const drain = "'f:spec': {'f:deletion': {'f:nodeDrainTimeoutSeconds': {}}}"
	object := machine(content{labels: "a=1"}, ours("{"+drain+"}"))
	current, desired := contentOf(object), content{labels: "a=2", taints: "gpu:NoSchedule"}.top()
	current.Layout.Version = "v1beta1"
	desired.Top.Fields.Seconds[inherit.NodeDrainTimeout] = new(int32(60))
	plan, err := managedfields.New(object, current, fromOwner(desired), func() (inherit.Object, error) { return current, nil })
	Expect(err).NotTo(HaveOccurred())
	Expect(plan.Changes()).To(ConsistOf(And(HaveField("Place", "metadata.labels"), HaveField("Name", "a"), HaveField("Value", "2"))))
	object.SetAPIVersion("cluster.x-k8s.io/v1beta1")
	result := patched(t, plan, object).GetManagedFields()
	Expect(result).To(HaveLen(1))
	Expect(result[0].APIVersion).To(Equal(version))
	Expect(result[0].FieldsV1.GetRawString()).To(MatchYAML("{'f:metadata': {'f:labels': {'f:a': {}}}, " + drain + "}"))
}

// A plan contains no entries for which the child has no room, and reports them. Stale inherited entries make room; entries of other owners
// do not.
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

// A client that fills a child with an update cannot push out inherited entries: the API server refuses the update instead.
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
		{old: unreadable, decided: fromOwner(zone.top()), leftOut: true}, // the first writer is unknown
		{old: has(zone), decided: orphan(zone.top()), leftOut: true},     // an orphan keeps all its entries
	} {
		plan, err := managedfields.New(&metav1.ObjectMeta{}, filled.top(), tc.decided, tc.old)
		Expect(err).NotTo(HaveOccurred())
		Expect(plan.LeftOut() != nil).To(Equal(tc.leftOut))
		Expect(len(plan.Changes()) == 0).To(Equal(tc.leftOut))
	}
}

// TestAgainstFieldManager has the objects that are adopted. Fields of a status, and a request without managed fields and without an age, are no
// create.
func TestNothingToAdopt(t *testing.T) {
	status := managed("velero", update, labelA)
	status.Subresource = "status"
	a := content{labels: "a=1"}
	creating := machine(a)
	creating.SetCreationTimestamp(metav1.Time{})
	for _, o := range []*unstructured.Unstructured{created(time.Hour, machine(a), status), creating} {
		NewWithT(t).Expect(planOf(t, o, fromOwner(a.top())).Adopts()).To(BeFalse())
	}
}

// other returns an entry that keeps only the time of the last change.
func other(last metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Time: last.Time}
}

func trimmed(fields []metav1.ManagedFieldsEntry, created time.Time) []metav1.ManagedFieldsEntry {
	return managedfields.Trimmed(fields, created, inherit.CapacityAnnotations)
}

// The cache keeps enough to decide whether the loop may adopt entries, and when another client last changed the object.
func TestTrimmed(t *testing.T) {
	Expect := NewWithT(t).Expect
	age := now.Add(-time.Hour)
	restored, later := managed("velero", update, labelA), after(managed("kubectl", update, labelB), time.Minute)
	for _, tc := range []struct{ all, kept []metav1.ManagedFieldsEntry }{
		{entries(theirs(labelA), restored, later, ours(labelA)), entries(ours(labelA), other(later))},
		{entries(restored, later, ours(gpu)), entries(restored, ours(gpu), other(later))}, // taints may be the object's own
		{entries(theirs(told)), entries(theirs(told))},
		{entries(theirs(labelA)), entries(other(theirs(labelA)))}, // an object without managed fields is another case
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

// An API server notes the time of an entry before it asks the webhooks, and the time of the create after their answers.
func TestEntriesOfACreateWithSlowWebhooks(t *testing.T) {
	for _, tc := range []struct {
		at       time.Duration
		ofCreate bool
	}{{-2 * time.Minute, false}, {-time.Minute, true}, {-20 * time.Second, true}, {0, true}, {time.Second, true}, {2 * time.Second, false}} {
		entry := managed("provider", metav1.ManagedFieldsOperationUpdate, labelA)
		entry.Time = &metav1.Time{Time: now.Add(tc.at)}
		NewWithT(t).Expect(managedfields.OfCreate(entry, now)).To(Equal(tc.ofCreate), tc.at.String())
	}
	create := managed("provider", metav1.ManagedFieldsOperationUpdate, labelA)
	create.Time = &metav1.Time{Time: now.Add(-24*time.Hour - 3*time.Second)}
	copied := machine(content{labels: "a=1"}, create)
	NewWithT(t).Expect(planOf(t, copied, fromOwner(content{labels: "a=1"}.top())).Adopts()).To(BeTrue())
}
