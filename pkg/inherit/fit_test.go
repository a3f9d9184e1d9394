// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func kib(n int) string { return strings.Repeat("x", n<<10) }

// taintsFrom returns n valid taints.
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

// machineGets returns the content that a Machine with existing content inherits from its owner's declarations, and the problems of the
// entries that are left out.
func machineGets(has, declares inherit.Content) (inherit.Object, error) {
	m := &clusterv1.Machine{}
	m.Labels, m.Annotations, m.Spec.Taints, m.Spec.ReadinessGates = has.Labels, has.Annotations, has.Taints, has.Fields.ReadinessGates
	policy := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}
	if len(declares.Taints) == 0 {
		policy.ClusterAPITaints = inherit.PropagationDisabled
	}
	desired, dropped := policy.MachineFrom(&inherit.Template{Content: declares}, m)
	desired.Top.Claims = declares.Claims
	current := inherit.OfMachine(m)
	fitting, noRoom := inherit.Fit(current, desired, func() inherit.Object { return current }, nil)
	return fitting, errors.Join(dropped.Problems(), noRoom)
}

// A Machine inherits valid content only, and each entry that is left out is reported.
func TestMachinesStayValid(t *testing.T) {
	const always, once = clusterv1.MachineTaintPropagationAlways, clusterv1.MachineTaintPropagationOnInitialization
	for _, tc := range []struct {
		name     string
		has      inherit.Content // somebody else owns all entries
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
			name:     "what becomes smaller leaves room at once, not only for the next write",
			has:      inherit.Content{Annotations: map[string]string{"mine": kib(255)}},
			declared: inherit.Content{Annotations: map[string]string{"mine": kib(100), "other": kib(50)}},
			want:     inherit.Content{Annotations: map[string]string{"mine": kib(100), "other": kib(50)}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			got, err := machineGets(tc.has, tc.declared)
			Expect(maps.Equal(got.Top.Labels, tc.want.Labels)).To(BeTrue(), "%v", got.Top.Labels)
			Expect(maps.Equal(got.Top.Annotations, tc.want.Annotations)).To(BeTrue(), "%v", slices.Collect(maps.Keys(got.Top.Annotations)))
			Expect(got.Top.Taints).To(Equal(tc.want.Taints))
			Expect(got.Top.Fields).To(Equal(tc.want.Fields))
			problems := inherit.Problems(err)
			Expect(problems).To(HaveLen(len(tc.problems)), "%v", err)
			for i, want := range tc.problems {
				Expect(problems[i]).To(MatchError(ContainSubstring(want)))
				Expect(len(problems[i].Error())).To(BeNumerically("<", 1000), "a problem stays short for every declaration")
				Expect(problems[i]).NotTo(MatchError(ContainSubstring("secret")), "a problem does not contain values of annotations")
			}
		})
	}
}

// Content without a place in the child causes no problem.
func TestContentWithoutAPlace(t *testing.T) {
	Expect := NewWithT(t).Expect
	bad := inherit.Content{Labels: map[string]string{"a b": ""}, Taints: taintsFrom("x", 100, "Always"), Fields: inherit.Fields{Seconds: inherit.Seconds{inherit.MinReadySeconds: ptr.To[int32](-1)}}}
	policy := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}
	section := inherit.Section{Class: inherit.Part{Content: bad, OfMachines: true}}
	for _, child := range []inherit.Object{{}, {Layout: inherit.ControlPlaneLayout("v1beta2", func(...string) bool { return false }), Template: &inherit.Content{}}} {
		desired, dropped := policy.ControlPlane(section, child)
		_, noRoom := inherit.Fit(child, desired, func() inherit.Object { return child }, nil)
		problems := inherit.Problems(errors.Join(dropped.Problems(), noRoom))
		Expect(problems).To(HaveLen(len(child.Layout.Top.Metadata)), "at most the label at its top")
	}
	md := &clusterv1.MachineDeployment{}
	md.Spec.Template.Labels, md.Spec.Template.Spec.Taints, md.Spec.Template.Spec.MinReadySeconds = bad.Labels, bad.Taints, bad.Fields.Seconds[inherit.MinReadySeconds]
	ms := &clusterv1.MachineSet{}
	desired, dropped := policy.MachineSet(md, ms)
	_, noRoom := inherit.Fit(inherit.OfMachineSet(ms), desired, func() inherit.Object { return inherit.OfMachineSet(ms) }, nil)
	problems := inherit.Problems(errors.Join(dropped.Problems(), noRoom))
	Expect(problems).To(HaveLen(1 + 1 + 1 + 36))
	Expect(problems[0]).To(MatchError(HavePrefix(`label "a b": `)))
	Expect(problems[1]).To(MatchError(HavePrefix(`template label "a b": `)))
}

// garbage generates content with many invalid and some oversized entries.
var garbage = rapid.Custom(func(t *rapid.T) inherit.Content {
	word := rapid.StringMatching(`a|b|Team|example\.com/c|Example\.com/d|a b|-|é|x/y/z||\x00|x{63}|y{64}|(example\.com/)?k[0-9]{1,2}|(example\.com/)?l[0-9]{1,2}`)
	upTo := func(n int) int { return rapid.IntRange(0, n).Draw(t, "") }
	pairs := func(value *rapid.Generator[string]) map[string]string {
		n := upTo(40)
		return rapid.MapOfN(word, value, n/2, n).Draw(t, "")
	}
	number := rapid.Ptr(rapid.Int32(), true)
	taints, gates := upTo(120), upTo(60)
	c := inherit.Content{
		Labels: pairs(word), Annotations: pairs(rapid.Map(word, func(w string) string { return strings.Repeat(w, 1+len(w)*4) })),
		Taints: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) clusterv1.MachineTaint {
			return clusterv1.MachineTaint{
				Key: word.Draw(t, ""), Value: word.Draw(t, ""), Effect: corev1.TaintEffectNoSchedule,
				Propagation: oneOf[clusterv1.MachineTaintPropagation](t, "Always", "OnInitialization", "Never"),
			}
		}), taints, taints).Draw(t, ""),
	}
	for f := range c.Fields.Seconds {
		c.Fields.Seconds[f] = number.Draw(t, "")
	}
	c.Fields.ReadinessGates = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) clusterv1.MachineReadinessGate {
		return clusterv1.MachineReadinessGate{ConditionType: word.Draw(t, ""), Polarity: oneOf[clusterv1.ConditionPolarity](t, "", "Positive", "Negative", "x")}
	}), gates, gates).Draw(t, "")
	if rapid.Bool().Draw(t, "") {
		c.Annotations["example.com/large"] = kib(upTo(300))
	}
	return c
})

// For every declaration and every Machine, the API server accepts the Machine afterwards, the Machine inherits every valid entry that
// fits, and the choice of the entries that are left out does not depend on earlier results.
func TestMachinesStayValidForAnyDeclaration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		Expect := NewWithT(t).Expect
		owner := garbage.Draw(t, "owner")
		has, _ := machineGets(inherit.Content{}, distinct(garbage.Draw(t, "Machine")))
		declared, before := distinct(owner), fmt.Sprint(owner)

		once, leftOut := machineGets(has.Top, declared)
		result := after(has.Top, once.Top)
		expectAccepted(t, result)
		Expect(fmt.Sprint(owner)).To(Equal(before), "an input was mutated")

		again, _ := machineGets(result, declared)
		Expect(brief(again.Top)).To(Equal(brief(once.Top)), "the result depends on earlier results")
		if len(inherit.Problems(leftOut)) == 0 {
			Expect(len(once.Top.Labels)+len(once.Top.Annotations)+len(once.Top.Taints)).To(
				Equal(len(declared.Labels)+len(declared.Annotations)+len(declared.Taints)), "something is left out silently")
		}
	})
}

// brief describes content with truncated values.
func brief(c inherit.Content) []string {
	lines := describeContent(&c)
	for i, line := range lines {
		lines[i] = fmt.Sprintf("%.80q of %d", line, len(line))
	}
	return append(lines, fmt.Sprint(c.Fields.ReadinessGates))
}

// distinct keeps each taint once.
func distinct(c inherit.Content) inherit.Content {
	c.Taints = taint.Merge(c.Taints, nil)
	return c
}

// after returns the content of an object after it has inherited.
func after(has, inherits inherit.Content) inherit.Content {
	merged := inherit.Content{Labels: maps.Clone(has.Labels), Annotations: maps.Clone(has.Annotations), Fields: inherits.Fields}
	maps.Copy(merged.Labels, inherits.Labels)
	maps.Copy(merged.Annotations, inherits.Annotations)
	merged.Taints = taint.Merge(inherits.Taints, has.Taints)
	merged.Fields.ReadinessGates = slices.Clone(inherits.Fields.ReadinessGates)
	for _, gate := range has.Fields.ReadinessGates {
		if !slices.ContainsFunc(merged.Fields.ReadinessGates, func(g clusterv1.MachineReadinessGate) bool { return g.ConditionType == gate.ConditionType }) {
			merged.Fields.ReadinessGates = append(merged.Fields.ReadinessGates, gate)
		}
	}
	return merged
}

// expectAccepted validates like an API server: with its functions and the limits of Cluster API's CRDs.
func expectAccepted(t rapid.TB, c inherit.Content) {
	t.Helper()
	Expect := NewWithT(t).Expect
	Expect(metav1validation.ValidateLabels(c.Labels, field.NewPath("labels"))).To(BeEmpty())
	Expect(apivalidation.ValidateAnnotations(c.Annotations, field.NewPath("annotations"))).To(BeEmpty())
	Expect(len(c.Taints)).To(BeNumerically("<=", 64))
	for _, declared := range c.Taints {
		Expect(declared.Key).To(MatchRegexp(qualified))
		Expect(declared.Value).To(MatchRegexp(`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`))
		Expect(string(declared.Propagation)).To(BeElementOf("Always", "OnInitialization"))
	}
	Expect(len(c.Fields.ReadinessGates)).To(BeNumerically("<=", 32))
	for _, gate := range c.Fields.ReadinessGates {
		Expect(gate.ConditionType).To(MatchRegexp(qualified))
		Expect(string(gate.Polarity)).To(BeElementOf("", "Positive", "Negative"))
	}
	for _, n := range c.Fields.Seconds {
		Expect(ptr.Deref(n, 0)).To(BeNumerically(">=", 0))
	}
}

// qualified is the pattern of keys and condition types in Cluster API's CRDs.
var qualified = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`).String()

// Labels have no limit of their own, but an object has. Each label is stored twice: as a label and in managed fields.
func TestMoreLabelsThanAnObjectHasRoomFor(t *testing.T) {
	many := map[string]string{}
	for i := range 5_000 {
		many[fmt.Sprintf("example.com/label-%d", i)] = strings.Repeat("x", 60)
	}
	machine := inherit.Object{Layout: inherit.MachineLayout}
	admitted, err := inherit.Fit(machine, inherit.Object{Top: inherit.Content{Labels: many}}, func() inherit.Object { return machine }, nil)
	NewWithT(t).Expect(len(admitted.Top.Labels)).To(And(BeNumerically(">", 3_000), BeNumerically("<", 4_000)))
	NewWithT(t).Expect(inherit.Problems(err)).To(HaveLen(5_000 - len(admitted.Top.Labels)))
}

// An owner may declare as many entries as an object has room for. Evaluation takes no longer than reading them; the report is short.
func TestGarbageWithoutEnd(t *testing.T) {
	Expect := NewWithT(t).Expect
	var gates []clusterv1.MachineReadinessGate
	var annotated []string
	for i := range 50_000 {
		gates = append(gates, clusterv1.MachineReadinessGate{ConditionType: fmt.Sprintf("gate-%d", i)})
		annotated = append(annotated, fmt.Sprintf("t%d:NoSchedule", i))
	}
	declared := inherit.Content{
		Taints: taintsFrom("taint", 50_000, "Always"), Fields: inherit.Fields{ReadinessGates: gates},
		Annotations: map[string]string{taint.AlwaysAnnotation: strings.Join(annotated, ",")},
	}
	machine := inherit.Object{Layout: inherit.MachineLayout}
	admitted, err := machineGets(inherit.Content{}, declared)
	Expect(admitted.Top.Taints).To(HaveLen(64))
	Expect(admitted.Top.Fields.ReadinessGates).To(HaveLen(32))
	said := inherit.Sources{All: []inherit.Declaration{{Ref: inherit.Ref{Kind: "ControlPlane", Object: &clusterv1.Machine{}}, Content: declared, Paths: machine.Layout.Top}}}.Located(err)
	Expect(inherit.Problems(said)).To(HaveLen(11))
	Expect(inherit.Problems(said)[10]).To(MatchError(fmt.Sprint(len(inherit.Problems(err))-10, " more")))
}
