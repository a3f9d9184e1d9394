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

// What is adopted is ours alone, apart from those who apply it: so it goes when the owner drops it.
func TestWhatIsAdoptedCanBeRemoved(t *testing.T) {
	Expect := NewWithT(t).Expect
	has := content{labels: "a=1,b=2"}
	o := created(time.Hour, machine(has), theirs(labelB), managed("velero", update, labelsAB))
	there := patched(t, planOf(t, o, fromOwner(has.top())), o)
	Expect(there.GetLabels()).To(Equal(o.GetLabels()))
	Expect(ownersOf(there)).To(HaveLen(2), "nothing is left of the create's entry")
	Expect(patched(t, planOf(t, there, fromOwner(content{}.top())), there).GetLabels()).To(Equal(pairs("b=2")))
}

// A restored Machine is an orphan until its controller adopts it. The taints that it declares by annotation become ours
// before that, which must not make us forget the rest.
func TestTaintsOfAnOrphanDoNotPreventAdoption(t *testing.T) {
	Expect := NewWithT(t).Expect
	o := created(time.Hour, machine(content{labels: "a=1,b=2", taints: "gpu:NoSchedule"}), ours(gpu), managed("velero", update, labelsAB))
	o.SetManagedFields(trimmed(o.GetManagedFields(), now.Add(-time.Hour)))
	wants := content{labels: "a=1,b=2"}.top()
	annotate(&wants.Top, declared("gpu:NoSchedule"))
	plan := planOf(t, o, fromOwner(wants))
	Expect(plan.Adopts()).To(BeTrue())
	Expect(plan.Changes()).To(BeEmpty())
	o = patched(t, plan, o)
	Expect(ownersOf(o)).To(And(HaveLen(1), HaveKey(us)))
	wants.Top.Labels = nil
	Expect(words(planOf(t, o, fromOwner(wants)).Changes())).To(Equal([]string{`label "a"`, `label "b"`}), "the taint stays")
}

// A taint whose value an owner has overruled is ours and still the create's. That is no adoption to be made, which would keep the loop
// from adding another one.
func TestATaintThatIsOursAndTheCreatesIsNotAdoptedAgain(t *testing.T) {
	wants := content{taints: "gpu:NoSchedule"}.top()
	annotate(&wants.Top, declared("another:NoSchedule"))
	plan := planOf(t, created(time.Hour, machine(content{taints: "gpu:NoSchedule"}), ours(gpu), managed("velero", update, gpu)), fromOwner(wants))
	NewWithT(t).Expect(words(plan.Changes())).To(Equal([]string{`taint "another:NoSchedule"`}))
	NewWithT(t).Expect(plan.Adopts()).To(BeFalse())
}

// Where Cluster API refuses taints, an orphan gives up those that are ours, and nothing else.
func TestAnOrphanGivesRefusedTaintsUp(t *testing.T) {
	Expect := NewWithT(t).Expect
	has := content{labels: "a=1,mine=1", taints: "gpu:NoSchedule,foreign:NoExecute"}
	refused := orphan(inherit.Object{})
	refused.TaintsRefused = true
	taints, both := machine(has, ours(gpu)), machine(has, ours(`{'f:metadata': {'f:labels': {'f:a': {}}}, `+gpu[1:]))
	Expect(changes(planOf(t, taints, refused))).To(Equal([]string{"spec.taints gpu:NoSchedule <nil>"}))
	Expect(planOf(t, taints, refused).Adopts()).To(BeFalse())
	Expect(changes(planOf(t, both, refused))).To(Equal([]string{"spec.taints gpu:NoSchedule <nil>"}), "what an owner has brought stays, and stays ours")
	Expect(planOf(t, both, orphan(inherit.Object{})).Needed()).To(BeFalse())
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

func toldTop(value string) inherit.Object {
	object := content{}.top()
	if value != "" {
		object.Top.Annotations = map[string]string{inherit.CapacityLabelsAnnotation: value}
	}
	return object
}

func tells(value string) inherit.Decision {
	object := content{}.top()
	object.Top = object.Top.WithYielding(toldTop(value).Top.Annotations)
	return orphan(object)
}

// What cluster-autoscaler is told is ours for as long as nobody else says it, too.
func TestYielding(t *testing.T) {
	operator := after(managed("kubectl", update, told), time.Minute)
	velero := managed("velero", update, told)
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
		{name: "a restored one is ours again", has: "a=1", want: "a=1", fields: entries(velero), after: "a=1", needed: true, ours: true},
		{name: "one of the create that somebody applies since is theirs", has: "a=1", want: "a=1", fields: entries(theirs(told), velero), after: "a=1"},
		{name: "a restored one that says something else is not", has: "a=1", want: "a=2", fields: entries(velero), after: "a=1"},
	} {
		for where, fields := range map[string][]metav1.ManagedFieldsEntry{"in admission": tc.fields, "in the loop": trimmed(tc.fields, now.Add(-time.Hour))} {
			t.Run(tc.name+" "+where, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				o := created(time.Hour, object("Machine", toldTop(tc.has)), fields...)
				plan := planOf(t, o, tells(tc.want))
				Expect(plan.Needed()).To(Equal(tc.needed))
				o = patched(t, plan, o)
				Expect(o.GetAnnotations()[inherit.CapacityLabelsAnnotation]).To(Equal(tc.after))
				Expect(ownersOf(o)[us] != "").To(Equal(tc.ours))
			})
		}
	}
}

// An object that is restored before its owner is known tells cluster-autoscaler something already. What its owner brought
// before is adopted all the same, and kept until then.
func TestWhatIsToldIsFromNoOwner(t *testing.T) {
	Expect := NewWithT(t).Expect
	has := toldTop("t=1")
	has.Top.Labels = pairs("a=1")
	o := created(time.Hour, object("Machine", has), trimmed(entries(ours(told), managed("velero", update, labelA)), now.Add(-time.Hour))...)
	wants := tells("t=1")
	wants.Desired.Top.Labels, wants.Outcome = pairs("a=1"), inherit.Inherits
	Expect(planOf(t, o, wants).Adopts()).To(BeTrue())
	o.SetManagedFields(entries(ours(told[:len(told)-2] + ", 'f:labels': {'f:a': {}}}}")))
	Expect(words(planOf(t, o, tells("")).Changes())).To(HaveLen(1), "only what cluster-autoscaler is told goes")
}
