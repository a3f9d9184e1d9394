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

const (
	labelsAB = "{'f:metadata': {'f:labels': {'f:a': {}, 'f:b': {}}}}"
	labelB   = "{'f:metadata': {'f:labels': {'f:b': {}}}}"
)

// created returns an object of that age in a request at now.
func created(ago time.Duration, fields ...metav1.ManagedFieldsEntry) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: now.Add(-ago)}, ManagedFields: fields}
}

// after sets the time of an entry, which is an hour ago otherwise.
func after(entry metav1.ManagedFieldsEntry, d time.Duration) metav1.ManagedFieldsEntry {
	entry.Time = &metav1.Time{Time: entry.Time.Add(d)}
	return entry
}

func TestAdoption(t *testing.T) {
	const update = metav1.ManagedFieldsOperationUpdate
	restored := managed("velero", update, labelsAB)
	status := restored
	status.Subresource = "status"
	for _, tc := range []struct {
		name             string
		object           *metav1.ObjectMeta
		current, desired content
		adopts           bool
	}{
		{name: "a restored object that carries all is adopted", object: created(time.Hour, restored), current: content{labels: "a=1,b=2"}, desired: content{labels: "a=1,b=2"}, adopts: true},
		{name: "only what the owner declares is", object: created(time.Hour, restored), current: content{labels: "a=1,b=2"}, desired: content{labels: "a=1"}, adopts: true},
		{name: "so is one that is just being created", object: &metav1.ObjectMeta{ManagedFields: entries(restored)}, current: content{labels: "a=1"}, desired: content{labels: "a=1"}, adopts: true},
		{name: "so is one that was applied since", object: created(time.Hour, theirs(labelA), restored), current: content{labels: "a=1"}, desired: content{labels: "a=1"}, adopts: true},
		{name: "so is one that has lost its managed fields", object: created(time.Hour), current: content{labels: "a=1"}, desired: content{labels: "a=1"}, adopts: true},
		{name: "and had them made up at the first apply", object: created(48*time.Hour, theirs(labelB), managed("before-first-apply", update, labelA)), current: content{labels: "a=1"}, desired: content{labels: "a=1"}, adopts: true},
		{name: "an object that lacks something is no copy", object: created(time.Hour, restored), current: content{labels: "a=1"}, desired: content{labels: "a=1,c=3"}},
		{name: "nor is one with another value", object: created(time.Hour, restored), current: content{labels: "a=1,b=3"}, desired: content{labels: "a=1,b=2"}},
		{name: "what was set later is its writer's", object: created(2*time.Hour, restored), current: content{labels: "a=1"}, desired: content{labels: "a=1"}},
		{name: "what was applied is its applier's", object: created(time.Hour, theirs(labelA)), current: content{labels: "a=1"}, desired: content{labels: "a=1"}},
		{name: "what a status has is nobody's business", object: created(time.Hour, status), current: content{labels: "a=1"}, desired: content{labels: "a=1"}},
		{name: "where something is ours already, the rest is not", object: created(time.Hour, restored, ours(labelB)), current: content{labels: "a=1,b=2"}, desired: content{labels: "a=1,b=2"}},
		{name: "nothing declared, nothing adopted", object: created(time.Hour, restored), current: content{labels: "a=1"}},
		{name: "a request without managed fields and without an age tells nothing", object: &metav1.ObjectMeta{}, current: content{labels: "a=1"}, desired: content{labels: "a=1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			plan, err := managedfields.New(tc.object, tc.current.top(), fromOwner(tc.desired.top()), nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(plan.Adopts()).To(Equal(tc.adopts))
			Expect(tc.adopts && len(plan.Changes()) > 0).To(BeFalse(), "an adoption changes no content")
		})
	}
}

// What is adopted is ours alone, apart from those who apply it: so it goes when the owner drops it.
func TestWhatIsAdoptedCanBeRemoved(t *testing.T) {
	Expect := NewWithT(t).Expect
	restored := managed("velero", metav1.ManagedFieldsOperationUpdate, labelsAB)
	object := created(time.Hour, theirs(labelB), restored)
	raw := document(t, "{metadata: {labels: {a: '1', b: '2'}}}", object.ManagedFields)

	plan, err := managedfields.New(object, content{labels: "a=1,b=2"}.top(), fromOwner(content{labels: "a=1,b=2"}.top()), nil)
	Expect(err).NotTo(HaveOccurred())
	there := patched(t, plan, raw)
	Expect(withoutManagedFields(t, there)).To(MatchYAML("{metadata: {labels: {a: '1', b: '2'}}}"))
	object.ManagedFields = managedFieldsOf(t, there)
	Expect(object.ManagedFields).To(ConsistOf(HaveField("Manager", "capi-machineset"), HaveField("Manager", "heirloom")),
		"nothing is left of the create's entry")

	plan, err = managedfields.New(object, content{labels: "a=1,b=2"}.top(), fromOwner(content{}.top()), nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(withoutManagedFields(t, patched(t, plan, there))).To(MatchYAML("{metadata: {labels: {b: '2'}}}"))
}

// A restored Machine is an orphan until its controller adopts it. The taints that it declares by annotation become ours
// before that, which must not make us forget the rest.
func TestTaintsOfAnOrphanDoNotPreventAdoption(t *testing.T) {
	Expect := NewWithT(t).Expect
	restored := managed("velero", metav1.ManagedFieldsOperationUpdate, labelsAB)
	object := created(time.Hour, ours(gpu), restored)
	object.ManagedFields = trimmed(object.ManagedFields, object.CreationTimestamp.Time)
	has, wants := content{labels: "a=1,b=2", taints: "gpu:NoSchedule"}.top(), content{labels: "a=1,b=2"}.top()
	annotate(&wants.Top, declared("gpu:NoSchedule"))
	raw := document(t, "{metadata: {labels: {a: '1', b: '2'}}, spec: {taints: [{key: gpu, effect: NoSchedule, propagation: Always}]}}", object.ManagedFields)

	plan, err := managedfields.New(object, has, fromOwner(wants), nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(plan.Adopts()).To(BeTrue())
	Expect(plan.Changes()).To(BeEmpty())
	object.ManagedFields = managedFieldsOf(t, patched(t, plan, raw))
	Expect(object.ManagedFields).To(ConsistOf(HaveField("Manager", "heirloom")))

	wants.Top.Labels = nil
	plan, err = managedfields.New(object, has, fromOwner(wants), nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(plan.Changes()).To(HaveLen(2), "both labels go, the taint stays")
}

// A taint whose value an owner has overruled is ours and still the create's. That is no adoption to be made, which would keep the loop
// from adding another one.
func TestATaintThatIsOursAndTheCreatesIsNotAdoptedAgain(t *testing.T) {
	Expect := NewWithT(t).Expect
	object := created(time.Hour, ours(gpu), managed("velero", metav1.ManagedFieldsOperationUpdate, gpu))
	wants := content{taints: "gpu:NoSchedule"}.top()
	annotate(&wants.Top, declared("another:NoSchedule"))

	plan, err := managedfields.New(object, content{taints: "gpu:NoSchedule"}.top(), fromOwner(wants), nil)

	Expect(err).NotTo(HaveOccurred())
	Expect(plan.Changes()).To(HaveLen(1))
	Expect(plan.Adopts()).To(BeFalse())
}

// Where Cluster API refuses taints, an orphan gives up those that are ours, and nothing else.
func TestAnOrphanGivesRefusedTaintsUp(t *testing.T) {
	Expect := NewWithT(t).Expect
	has := content{labels: "a=1,mine=1", taints: "gpu:NoSchedule,foreign:NoExecute"}.top()
	refused := orphan(inherit.Object{})
	refused.TaintsRefused = true
	gone := []managedfields.Change{{Place: "spec.taints", Name: "gpu:NoSchedule"}}

	plan := planOf(t, has, refused, entries(ours(gpu)))
	Expect(plan.Changes()).To(Equal(gone))
	Expect(plan.Adopts()).To(BeFalse())
	plan = planOf(t, has, refused, entries(ours(`{'f:metadata': {'f:labels': {'f:a': {}}}, `+gpu[1:])))
	Expect(plan.Changes()).To(Equal(gone), "what an owner has brought stays, and stays ours")

	refused.TaintsRefused = false
	Expect(planOf(t, has, refused, entries(ours(`{'f:metadata': {'f:labels': {'f:a': {}}}, `+gpu[1:]))).Needed()).To(BeFalse())
}

func trimmed(fields []metav1.ManagedFieldsEntry, created time.Time) []metav1.ManagedFieldsEntry {
	return managedfields.Trimmed(fields, created, inherit.CapacityAnnotations)
}

// The cache keeps enough to tell whether there may be something to adopt.
func TestTrimmed(t *testing.T) {
	Expect := NewWithT(t).Expect
	const update = metav1.ManagedFieldsOperationUpdate
	age := now.Add(-time.Hour)
	restored, later := managed("velero", update, labelA), after(managed("kubectl", update, labelB), time.Minute)

	Expect(trimmed(entries(restored, ours(labelA)), age)).To(Equal(entries(ours(labelA))))
	Expect(trimmed(entries(restored, later, ours(gpu)), age)).To(Equal(entries(restored, ours(gpu))), "taints alone tell nothing")
	Expect(trimmed(entries(theirs(labelA), restored, later), age)).To(Equal(entries(restored)))
	Expect(trimmed(entries(theirs(labelA)), age)).To(HaveLen(1), "none is not the same as none of interest")
	Expect(trimmed(nil, age)).To(BeEmpty())
	for _, fields := range [][]metav1.ManagedFieldsEntry{entries(restored), entries(theirs(labelA)), entries(ours(labelA)), nil} {
		whole := &metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: age}, ManagedFields: fields}
		part := whole.DeepCopy()
		part.ManagedFields = trimmed(fields, age)
		for _, object := range []*metav1.ObjectMeta{whole, part} {
			plan, err := managedfields.New(object, content{labels: "a=1"}.top(), fromOwner(content{labels: "a=1"}.top()), nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(plan.Adopts()).To(Equal(len(fields) == 0 || fields[0].Manager == "velero"))
		}
	}
}

// The loop gives up by patch and adds by apply, because the API server records what a patch adds as an Update. Both together
// come to what admission answers in one.
func TestRemovalsAreApart(t *testing.T) {
	Expect := NewWithT(t).Expect
	object := created(24*time.Hour, ours(`{'f:metadata': {'f:labels': {'f:a': {}, 'f:b': {}}}, 'f:spec': {'f:taints': {'k:{"effect":"NoSchedule","key":"gpu"}': {'.': {}, 'f:effect': {}, 'f:key': {}, 'f:propagation': {}, 'f:value': {}}}}}`))
	has, wants := content{labels: "a=1,b=1", taints: "gpu=x:NoSchedule"}, content{labels: "a=2,c=3", taints: "gpu:NoSchedule@OnInitialization"}
	raw := document(t, "{metadata: {labels: {a: '1', b: '1'}}, spec: {taints: [{key: gpu, value: x, effect: NoSchedule, propagation: Always}]}}", object.ManagedFields)

	plan, err := managedfields.New(object, has.top(), fromOwner(wants.top()), nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(plan.GivesUp()).To(BeTrue())
	removal, err := managedfields.NewRemoval(object, has.top(), fromOwner(wants.top()))
	Expect(err).NotTo(HaveOccurred())
	there := patched(t, removal, raw)
	Expect(withoutManagedFields(t, there)).To(MatchYAML("{metadata: {labels: {a: '1'}}, spec: {taints: [{key: gpu, effect: NoSchedule, propagation: Always}]}}"))

	object.ManagedFields = managedFieldsOf(t, there)
	plan, err = managedfields.New(object, content{labels: "a=1", taints: "gpu:NoSchedule"}.top(), fromOwner(wants.top()), nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(plan.GivesUp()).To(BeFalse(), "one removal is enough")
	Expect(plan.Changes()).To(HaveLen(3), "label a, label c and the taint")
}
