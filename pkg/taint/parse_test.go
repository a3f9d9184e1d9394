// SPDX-License-Identifier: Apache-2.0

package taint_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       corev1.Taint
		problem    string
	}{
		{name: "key, value and effect are read", text: "gpu=true:NoSchedule", want: corev1.Taint{Key: "gpu", Value: "true", Effect: "NoSchedule"}},
		{name: "a taint needs no value", text: "gpu:NoExecute", want: corev1.Taint{Key: "gpu", Effect: "NoExecute"}},
		{name: "an empty value is no value", text: "gpu=:NoExecute", want: corev1.Taint{Key: "gpu", Effect: "NoExecute"}},
		{name: "a key may have a prefix", text: "example.com/gpu=a.b_c-d:PreferNoSchedule", want: corev1.Taint{Key: "example.com/gpu", Value: "a.b_c-d", Effect: "PreferNoSchedule"}},
		{name: "the content is for Validate to judge", text: "?=!:Never", want: corev1.Taint{Key: "?", Value: "!", Effect: "Never"}},
		{name: "nothing is not a taint", text: "", problem: `taint "" lacks an effect`},
		{name: "a key and a value are not a taint", text: "gpu=true", problem: `taint "gpu=true" lacks an effect`},
		{name: "a taint without a key is refused", text: ":NoSchedule", problem: `taint ":NoSchedule" has no key`},
		{name: "a second colon is refused", text: "gpu:true:NoSchedule", problem: `taint "gpu:true:NoSchedule" has more than one colon`},
		{name: "a second equals sign is refused", text: "gpu=a=b:NoSchedule", problem: `taint "gpu=a=b:NoSchedule" has more than one equals sign`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			got, err := taint.Parse(tc.text)
			if tc.problem != "" {
				Expect(err).To(MatchError(And(HavePrefix(tc.problem), ContainSubstring("expected <key>=<value>:<effect>"))))
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(got).To(Equal(tc.want))
		})
	}
}

func TestParseList(t *testing.T) {
	for _, tc := range []struct {
		name, text, want string
		problems         []string
	}{
		{name: "a list of blanks and commas has no taints", text: " , ,,\t,"},
		{name: "blanks around entries do not count", text: " gpu:NoSchedule ,\n a=b:NoExecute ", want: "gpu:NoSchedule,a=b:NoExecute"},
		{name: "repeated entries are all there", text: "gpu:NoSchedule,gpu:NoSchedule", want: "gpu:NoSchedule,gpu:NoSchedule"},
		{name: "one typo does not lose the others", text: "a:NoSchedule,typo,b:NoExecute", want: "a:NoSchedule,b:NoExecute", problems: []string{`"typo" lacks an effect`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			got, err := taint.ParseList(tc.text)
			Expect(got).To(Equal(onNode(t, tc.want)))
			expectProblems(t, err, tc.problems)
		})
	}
}

func TestFromAnnotations(t *testing.T) {
	const always, initialize = taint.AlwaysAnnotation, taint.InitializeAnnotation
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		want        string
		problems    map[string]string
	}{
		{name: "an empty annotation declares nothing", annotations: map[string]string{always: "", initialize: ""}},
		{name: "always means Always", annotations: map[string]string{always: "gpu=true:NoSchedule"}, want: "gpu=true:NoSchedule@Always"},
		{name: "initialize means OnInitialization", annotations: map[string]string{initialize: "gpu=true:NoSchedule"}, want: "gpu=true:NoSchedule@OnInitialization"},
		{
			name:        "both together are sorted by key and effect",
			annotations: map[string]string{always: "b:NoSchedule,a:NoSchedule", initialize: "c:NoExecute,a:NoExecute"},
			want:        "a:NoExecute@OnInitialization,a:NoSchedule,b:NoSchedule,c:NoExecute@OnInitialization",
		},
		{
			name:        "Always wins where both name the same key and effect",
			annotations: map[string]string{initialize: "gpu=once:NoSchedule", always: "gpu=always:NoSchedule"},
			want:        "gpu=always:NoSchedule@Always",
		},
		{
			name:        "the first wins where one annotation names a taint twice",
			annotations: map[string]string{always: "gpu=one:NoSchedule,gpu=two:NoSchedule"},
			want:        "gpu=one:NoSchedule",
		},
		{
			name:        "an entry that cannot be read is left out and named with its annotation",
			annotations: map[string]string{always: "typo,a:NoSchedule", initialize: "b:NoExecute,slip"},
			want:        "a:NoSchedule,b:NoExecute@OnInitialization",
			problems:    map[string]string{always: `taint "typo"`, initialize: `taint "slip"`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, unreadable := taint.FromAnnotations(tc.annotations)
			NewWithT(t).Expect(got).To(Equal(declared(t, tc.want)))
			NewWithT(t).Expect(unreadable).To(HaveLen(len(tc.problems)))
			for name, problem := range tc.problems {
				NewWithT(t).Expect(unreadable[name]).To(MatchError(ContainSubstring(problem)))
			}
		})
	}
}

func TestFormat(t *testing.T) {
	for _, tc := range []struct{ name, taints, list, ids string }{
		{name: "nothing is an empty text"},
		{name: "no value leaves no equals sign", taints: "gpu:NoSchedule", list: "gpu:NoSchedule", ids: "gpu:NoSchedule"},
		{name: "entries are sorted", taints: "b:NoSchedule,a=2:NoSchedule,a=1:NoExecute", list: "a=1:NoExecute,a=2:NoSchedule,b:NoSchedule", ids: "a:NoExecute,a:NoSchedule,b:NoSchedule"},
		{name: "each entry is there once", taints: "a=1:NoSchedule,a=1:NoSchedule", list: "a=1:NoSchedule", ids: "a:NoSchedule"},
		{name: "values make no difference to identities", taints: "a=1:NoSchedule,a=2:NoSchedule", list: "a=1:NoSchedule,a=2:NoSchedule", ids: "a:NoSchedule"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			taints := onNode(t, tc.taints)
			Expect(taint.FormatList(taints)).To(Equal(tc.list))
			Expect(taint.FormatIDs(taints)).To(Equal(tc.ids))
			Expect(taints).To(Equal(onNode(t, tc.taints)), "the input is not sorted in place")
			if len(taints) == 1 {
				Expect(taint.Format(taints[0])).To(Equal(tc.list))
			}
		})
	}
}

// expectProblems expects an error that contains each problem, or no error without problems.
func expectProblems(t *testing.T, err error, problems []string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	if len(problems) == 0 {
		Expect(err).NotTo(HaveOccurred())
		return
	}
	for _, problem := range problems {
		Expect(err).To(MatchError(ContainSubstring(problem)))
	}
}
