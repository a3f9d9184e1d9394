// SPDX-License-Identifier: Apache-2.0

package taint_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func TestFind(t *testing.T) {
	taints := "a:NoSchedule,b=1:NoSchedule,b=2:NoExecute"
	for _, tc := range []struct {
		name string
		id   taint.ID
		want int
	}{
		{name: "a taint is found whatever its value", id: taint.ID{Key: "b", Effect: "NoSchedule"}, want: 1},
		{name: "the same key with another effect is another taint", id: taint.ID{Key: "b", Effect: "NoExecute"}, want: 2},
		{name: "an absent taint is not found", id: taint.ID{Key: "a", Effect: "NoExecute"}, want: -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			NewWithT(t).Expect(taint.Find(onNode(t, taints), tc.id)).To(Equal(tc.want))
		})
	}
}

func TestMerge(t *testing.T) {
	for _, tc := range []struct{ name, typed, annotated, want string }{
		{name: "nothing and nothing is nothing"},
		{name: "typed taints alone are sorted", typed: "b:NoSchedule,a:NoSchedule,a:NoExecute", want: "a:NoExecute,a:NoSchedule,b:NoSchedule"},
		{name: "annotated taints alone are sorted", annotated: "b:NoSchedule,a:NoSchedule", want: "a:NoSchedule,b:NoSchedule"},
		{name: "different taints come together", typed: "b:NoSchedule", annotated: "a:NoSchedule@OnInitialization", want: "a:NoSchedule@OnInitialization,b:NoSchedule"},
		{name: "the typed taint wins on the same key and effect", typed: "gpu=typed:NoSchedule@OnInitialization", annotated: "gpu=annotated:NoSchedule", want: "gpu=typed:NoSchedule@OnInitialization"},
		{name: "the same key with another effect is another taint", typed: "gpu=a:NoSchedule", annotated: "gpu=b:NoExecute", want: "gpu=b:NoExecute,gpu=a:NoSchedule"},
		{name: "the first of two typed taints wins", typed: "gpu=one:NoSchedule,gpu=two:NoSchedule", want: "gpu=one:NoSchedule"},
		{name: "the first of two annotated taints wins", annotated: "gpu=one:NoSchedule,gpu=two:NoSchedule", want: "gpu=one:NoSchedule"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			typed, annotated := declared(t, tc.typed), declared(t, tc.annotated)
			Expect(taint.Merge(typed, annotated)).To(Equal(declared(t, tc.want)))
			Expect(typed).To(Equal(declared(t, tc.typed)), "the input is not sorted in place")
			Expect(annotated).To(Equal(declared(t, tc.annotated)), "the input is not sorted in place")
		})
	}
}
