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

// What the child has no room for is in no plan, and the plan says so. What was inherited and is stale makes room;
// what is somebody else's does not.
func TestPlansAreAdmissible(t *testing.T) {
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
		{
			name: "what somebody else owns as well does not", current: content{annotations: "old=" + large}, desired: content{annotations: "b=" + large}, fields: entries(theirs(old), ours(old)),
			leftOut: `annotation "b": there is no room for it`,
		},
		{name: "nor does what an orphan keeps", current: content{annotations: "old=" + large}, desired: content{annotations: "b=" + large}, fields: entries(ours(old)), orphan: true, leftOut: `annotation "b": there is no room for it`},
		{name: "what is ours keeps its room", current: content{annotations: "b=" + large}, desired: content{annotations: "b=" + large + ",c=1"}, fields: entries(ours(noteB)), want: []string{`annotation "c"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			decided := fromOwner(inherit.Object{Top: tc.desired.content()})
			if tc.orphan {
				decided.Outcome = inherit.NoOwner
			}
			plan := planOf(t, tc.current.top(), decided, tc.fields)
			var changes []string
			for _, change := range plan.Changes() {
				changes = append(changes, change.String())
			}
			Expect(changes).To(Equal(tc.want))
			if tc.leftOut == "" {
				Expect(plan.LeftOut()).NotTo(HaveOccurred())
				return
			}
			Expect(plan.LeftOut()).To(MatchError(ContainSubstring(tc.leftOut)))
		})
	}
}

// Managed fields that cannot be read are an error where they matter, as for every other plan.
func TestRoomThatIsNotKnown(t *testing.T) {
	large := strings.Repeat("x", 200<<10)
	broken := theirs("{'k:rubbish': {}}")
	_, err := managedfields.New(child(entries(broken, ours("{'f:metadata': {'f:annotations': {'f:old': {}}}}"))),
		content{annotations: "old=" + large}.top(), fromOwner(content{annotations: "b=" + large}.top()), nil)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring(`metadata.managedFields of manager "capi-machineset"`)))
}

// A client that updates a child cannot push out what it inherits by filling it: the API server refuses that update instead.
func TestAnUpdateDoesNotPushOut(t *testing.T) {
	Expect := NewWithT(t).Expect
	var many []string
	for i := range 64 {
		many = append(many, fmt.Sprintf("taint-%02d:NoSchedule", i))
	}
	filled, zone := content{taints: strings.Join(many, ",")}, content{taints: "zone:NoSchedule"}
	for _, tc := range []struct {
		old     content
		leftOut bool
	}{
		{old: zone},
		{old: content{}},
		{old: filled, leftOut: true},
	} {
		plan, err := managedfields.New(child(nil), filled.top(), fromOwner(zone.top()), func() (inherit.Object, error) { return tc.old.top(), nil })
		Expect(err).NotTo(HaveOccurred())
		Expect(plan.LeftOut() != nil).To(Equal(tc.leftOut))
		Expect(len(plan.Changes())).To(Equal(map[bool]int{false: 1, true: 0}[tc.leftOut]))
	}
	plan, err := managedfields.New(child(nil), filled.top(), fromOwner(zone.top()), func() (inherit.Object, error) { return inherit.Object{}, errors.New("unreadable") })
	Expect(err).NotTo(HaveOccurred())
	Expect(plan.LeftOut()).To(HaveOccurred(), "without the old object nobody knows who was first")
}
