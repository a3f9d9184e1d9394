// SPDX-License-Identifier: Apache-2.0

package taint_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func TestMerge(t *testing.T) {
	for _, tc := range []struct{ name, typed, annotated, want string }{
		{name: "typed taints alone are sorted", typed: "b:NoSchedule,a:NoSchedule,a:NoExecute", want: "a:NoExecute,a:NoSchedule,b:NoSchedule"},
		{name: "different taints come together", typed: "b:NoSchedule", annotated: "a:NoSchedule@OnInitialization", want: "a:NoSchedule@OnInitialization,b:NoSchedule"},
		{name: "the typed taint wins on the same key and effect", typed: "gpu=typed:NoSchedule@OnInitialization", annotated: "gpu=annotated:NoSchedule", want: "gpu=typed:NoSchedule@OnInitialization"},
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
