// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func kib(n int) string { return strings.Repeat("x", n<<10) }

// taintsFrom are so many valid taints.
func taintsFrom(prefix string, n int, propagation clusterv1.MachineTaintPropagation) []clusterv1.MachineTaint {
	var all []clusterv1.MachineTaint
	for i := range n {
		all = append(all, clusterv1.MachineTaint{Key: fmt.Sprintf("%s%03d", prefix, i), Effect: "NoSchedule", Propagation: propagation})
	}
	return all
}

func gatesFrom(prefix string, n int) []clusterv1.MachineReadinessGate {
	var all []clusterv1.MachineReadinessGate
	for i := range n {
		all = append(all, clusterv1.MachineReadinessGate{ConditionType: fmt.Sprintf("%s%03d", prefix, i)})
	}
	return all
}

// TestAdmissible is about a Machine: what of an owner's content reaches it, and what is said of the rest.
func TestAdmissible(t *testing.T) {
	const always, once = clusterv1.MachineTaintPropagationAlways, clusterv1.MachineTaintPropagationOnInitialization
	for _, tc := range []struct {
		name     string
		has      inherit.Content // all of it somebody else's
		declared inherit.Content
		want     inherit.Content
		problems []string
	}{
		{name: "nothing"},
		{
			name:     "what is valid arrives",
			declared: inherit.Content{Labels: labels("a=1"), Annotations: map[string]string{"Example.com/a": "any\x00 thing"}, Fields: inherit.Fields{Seconds: inherit.Seconds{inherit.MinReadySeconds: ptr.To[int32](0)}}},
			want:     inherit.Content{Labels: labels("a=1"), Annotations: map[string]string{"Example.com/a": "any\x00 thing"}, Fields: inherit.Fields{Seconds: inherit.Seconds{inherit.MinReadySeconds: ptr.To[int32](0)}}},
		},
		{
			name:     "an invalid label is left out, and the rest arrives",
			declared: inherit.Content{Labels: map[string]string{"a b": "1", "b": "not a value", "c": strings.Repeat("x", 64), "": "x", "ok": ""}},
			want:     inherit.Content{Labels: labels("ok=")},
			problems: []string{`label ""="x": an API server would refuse it: name part must be non-empty`, `label "a b"="1": `, `label "b"="not a value": `, `label "c"="xxx`},
		},
		{
			name:     "an invalid annotation is left out",
			declared: inherit.Content{Annotations: map[string]string{"a/b/c": "secret", "ok": ""}},
			want:     inherit.Content{Annotations: map[string]string{"ok": ""}},
			problems: []string{`annotation "a/b/c": an API server would refuse it: `},
		},
		{
			name:     "what the Machine has already has been accepted",
			has:      inherit.Content{Labels: map[string]string{"a b": "1"}},
			declared: inherit.Content{Labels: map[string]string{"a b": "1"}},
			want:     inherit.Content{Labels: map[string]string{"a b": "1"}},
		},
		{
			name:     "timeouts are not negative",
			declared: inherit.Content{Fields: inherit.Fields{Seconds: inherit.Seconds{inherit.NodeDrainTimeout: ptr.To[int32](-1), inherit.NodeVolumeDetachTimeout: ptr.To[int32](-2), inherit.NodeDeletionTimeout: ptr.To[int32](7), inherit.MinReadySeconds: ptr.To[int32](-3)}}},
			want:     inherit.Content{Fields: inherit.Fields{Seconds: inherit.Seconds{inherit.NodeDeletionTimeout: ptr.To[int32](7)}}},
			problems: []string{`field "nodeDrainTimeoutSeconds": an API server would refuse -1`, `field "nodeVolumeDetachTimeoutSeconds": `, `field "minReadySeconds": `},
		},
		{
			name: "readiness gates are conditions",
			declared: inherit.Content{Fields: inherit.Fields{ReadinessGates: []clusterv1.MachineReadinessGate{
				{ConditionType: "a b"}, {ConditionType: strings.Repeat("x", 317)}, {ConditionType: "Up", Polarity: "Never"}, {ConditionType: ""},
				{ConditionType: "example.com/" + strings.Repeat("x", 200), Polarity: "Negative"}, {ConditionType: "Ok"}, {ConditionType: "Ok"},
			}}},
			want: inherit.Content{Fields: inherit.Fields{ReadinessGates: []clusterv1.MachineReadinessGate{
				{ConditionType: "example.com/" + strings.Repeat("x", 200), Polarity: "Negative"}, {ConditionType: "Ok"},
			}}},
			problems: []string{`field "a b": an API server would refuse this readiness gate`, `field "xxx`, `field "Up": an API server would refuse this readiness gate: its polarity`, `field "": `},
		},
		{
			name:     "more readiness gates than there is room for: the last are left out, and what the Machine has stays",
			has:      inherit.Content{Fields: inherit.Fields{ReadinessGates: gatesFrom("mine", 30)}},
			declared: inherit.Content{Fields: inherit.Fields{ReadinessGates: append(gatesFrom("mine", 1), gatesFrom("other", 3)...)}},
			want:     inherit.Content{Fields: inherit.Fields{ReadinessGates: append(gatesFrom("mine", 1), gatesFrom("other", 2)...)}},
			problems: []string{`field "other002": there is no room for it: an API server accepts no more than 32 readiness gates`},
		},
		{
			name:     "more taints than there is room for: those that Nodes keep come first, and what the Machine has stays",
			has:      inherit.Content{Taints: taintsFrom("mine", 3, always)},
			declared: inherit.Content{Taints: slices.Concat(taintsFrom("a-once", 2, once), taintsFrom("mine", 1, always), taintsFrom("other", 60, always))},
			want:     inherit.Content{Taints: slices.Concat(taintsFrom("mine", 1, always), taintsFrom("other", 60, always), taintsFrom("a-once", 1, once))},
			problems: []string{`taint "a-once001:NoSchedule": there is no room for it: an API server accepts no more than 64 taints`},
		},
		{
			name:     "typed taints come before those of annotations",
			declared: inherit.Content{Taints: append(taintsFrom("annotated", 1, always), taintsFrom("typed", 64, once)...), Claims: map[string]inherit.Claim{"annotated000:NoSchedule": inherit.Default}},
			want:     inherit.Content{Taints: taintsFrom("typed", 64, once)},
			problems: []string{`taint "annotated000:NoSchedule": there is no room for it`},
		},
		{
			name:     "more annotations than there is room for: the largest are left out, and taints come first",
			has:      inherit.Content{Annotations: map[string]string{"mine": kib(100), "changed": kib(1)}},
			declared: inherit.Content{Annotations: map[string]string{"large": kib(90), "larger": kib(91), "small": "1", "changed": kib(2), taint.AlwaysAnnotation: kib(92)}},
			want:     inherit.Content{Annotations: map[string]string{"small": "1", "changed": kib(2), taint.AlwaysAnnotation: kib(92)}},
			problems: []string{`annotation "large": there is no room for it: an API server accepts no more than 256 KiB of annotations`, `annotation "larger": `},
		},
		{
			name:     "what the Machine has with the same value takes no more room",
			has:      inherit.Content{Annotations: map[string]string{"mine": kib(255)}},
			declared: inherit.Content{Annotations: map[string]string{"mine": kib(255), "other": kib(1)}},
			want:     inherit.Content{Annotations: map[string]string{"mine": kib(255)}},
			problems: []string{`annotation "other": there is no room for it`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			has := inherit.Object{Layout: inherit.MachineLayout, Top: tc.has}
			got, err := inherit.Admissible(has, inherit.Object{Top: tc.declared}, func() inherit.Object { return has }, nil)
			Expect(maps.Equal(got.Top.Labels, tc.want.Labels)).To(BeTrue(), "%v", got.Top.Labels)
			Expect(maps.Equal(got.Top.Annotations, tc.want.Annotations)).To(BeTrue(), "%v", slices.Collect(maps.Keys(got.Top.Annotations)))
			Expect(got.Top.Taints).To(Equal(tc.want.Taints))
			Expect(got.Top.Fields).To(Equal(tc.want.Fields))
			problems := inherit.Problems(err)
			Expect(problems).To(HaveLen(len(tc.problems)), "%v", err)
			for i, want := range tc.problems {
				Expect(problems[i]).To(MatchError(ContainSubstring(want)))
				Expect(len(problems[i].Error())).To(BeNumerically("<", 1000), "whatever the owner has written")
				Expect(problems[i]).NotTo(MatchError(ContainSubstring("secret")), "values of annotations are nobody else's business")
			}
		})
	}
}

// What yields, and what has no place in the child, is nobody's problem.
func TestAdmissibleLeavesTheRestAlone(t *testing.T) {
	Expect := NewWithT(t).Expect
	bad := inherit.Content{Labels: map[string]string{"a b": ""}, Taints: taintsFrom("x", 100, "Always"), Fields: inherit.Fields{Seconds: inherit.Seconds{inherit.MinReadySeconds: ptr.To[int32](-1)}}}
	_, err := inherit.Admissible(inherit.Object{Layout: inherit.MetadataLayout("v1")}, inherit.Object{Template: &bad}, nil, nil)
	Expect(err).NotTo(HaveOccurred(), "an object without a Machine template inherits none")
	_, err = inherit.Admissible(inherit.Object{}, inherit.Object{Top: bad}, func() inherit.Object { return inherit.Object{} }, nil)
	Expect(err).NotTo(HaveOccurred(), "a control plane without these fields inherits none")
	machineSet := inherit.Object{Layout: inherit.WorkersLayout, Template: &inherit.Content{}}
	_, err = inherit.Admissible(machineSet, inherit.Object{Top: bad, Template: &bad}, func() inherit.Object { return machineSet }, nil)
	problems := inherit.Problems(err)
	Expect(problems).To(HaveLen(1 + 1 + 1 + 36))
	Expect(problems[0]).To(MatchError(HavePrefix(`label "a b": `)))
	Expect(problems[1]).To(MatchError(HavePrefix(`template label "a b": `)))
}
