// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
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
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// garbage makes content of which much is invalid and some too large.
func (d dice) garbage() inherit.Content {
	word := func() string {
		return d.pick("a", "b", "Team", "example.com/c", "Example.com/d", "a b", "-", "é", "x/y/z", "", "\x00", strings.Repeat("x", 63), strings.Repeat("y", 64),
			fmt.Sprint("k", d.IntN(100)), fmt.Sprint("example.com/k", d.IntN(100)))
	}
	pairs := func(value func() string) map[string]string {
		m := map[string]string{}
		for range d.IntN(40) {
			m[word()] = value()
		}
		return m
	}
	taints := func() []clusterv1.MachineTaint {
		var all []clusterv1.MachineTaint
		for range d.IntN(120) {
			all = append(all, clusterv1.MachineTaint{
				Key: word(), Value: word(), Effect: corev1.TaintEffectNoSchedule,
				Propagation: clusterv1.MachineTaintPropagation(d.pick("Always", "OnInitialization", "Initialize", "Never")),
			})
		}
		return all
	}
	number := func() *int32 {
		if d.IntN(3) == 0 {
			return nil
		}
		return ptr.To(d.Int32() - 1<<30)
	}
	c := inherit.Content{
		Labels: pairs(word), Annotations: pairs(func() string { return strings.Repeat(word(), 1+d.IntN(300)) }), Taints: taints(),
	}
	for f := range c.Fields.Seconds {
		c.Fields.Seconds[f] = number()
	}
	for range d.IntN(60) {
		c.Fields.ReadinessGates = append(c.Fields.ReadinessGates, clusterv1.MachineReadinessGate{
			ConditionType: word(), Polarity: clusterv1.ConditionPolarity(d.pick("", "Positive", "Negative", "x")),
		})
	}
	if d.IntN(2) == 0 {
		c.Annotations["example.com/large"] = kib(d.IntN(300))
	}
	return c
}

// TestAdmissibleProperties holds whatever an owner declares for whatever Machine: the API server accepts the Machine
// afterwards; what it would have accepted arrives; and who is left out does not depend on what has been inherited before.
func TestAdmissibleProperties(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(2026, 13))}
	for range 500 {
		Expect := NewWithT(t).Expect
		owner := d.garbage()
		has, _ := inherit.Admissible(inherit.Object{Layout: inherit.MachineLayout}, inherit.Object{Top: usable(d.garbage())}, func() inherit.Object { return inherit.Object{} }, nil)
		has.Layout = inherit.MachineLayout
		stays := func() inherit.Object { return has }
		declared, before := inherit.Object{Top: usable(owner)}, fmt.Sprint(owner)

		once, leftOut := inherit.Admissible(has, declared, stays, nil)
		result := has
		result.Top = after(has.Top, once.Top)
		expectAccepted(t, result.Top)
		Expect(fmt.Sprint(owner)).To(Equal(before), "an input was mutated")

		again, _ := inherit.Admissible(result, declared, stays, nil)
		Expect(brief(again.Top)).To(Equal(brief(once.Top)), "it depends on what was inherited before")
		if len(inherit.Problems(leftOut)) == 0 {
			Expect(len(once.Top.Labels)+len(once.Top.Annotations)+len(once.Top.Taints)).To(
				Equal(len(declared.Top.Labels)+len(declared.Top.Annotations)+len(declared.Top.Taints)), "something is left out silently")
		}
	}
}

// brief describes content with values cut off.
func brief(c inherit.Content) []string {
	lines := describeContent(&c)
	for i, line := range lines {
		lines[i] = fmt.Sprintf("%.80q of %d", line, len(line))
	}
	return append(lines, fmt.Sprint(c.Fields.ReadinessGates))
}

// usable is what the rules hand on: taints have been judged before.
func usable(c inherit.Content) inherit.Content {
	c.Taints, _ = taint.Usable(taint.Worker, taint.Merge(c.Taints, nil))
	return c
}

// after is what an object has once it has inherited.
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

// expectAccepted judges as API servers do, by their own functions and by what Cluster API's CRDs say.
func expectAccepted(t *testing.T, c inherit.Content) {
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

// Labels have no limit of their own. But an object has one, and each label is stored twice: once as who owns it.
func TestMoreLabelsThanAnObjectHasRoomFor(t *testing.T) {
	many := map[string]string{}
	for i := range 5_000 {
		many[fmt.Sprintf("example.com/label-%d", i)] = strings.Repeat("x", 60)
	}
	machine := inherit.Object{Layout: inherit.MachineLayout}
	admitted, err := inherit.Admissible(machine, inherit.Object{Top: inherit.Content{Labels: many}}, func() inherit.Object { return machine }, nil)
	NewWithT(t).Expect(len(admitted.Top.Labels)).To(And(BeNumerically(">", 3_000), BeNumerically("<", 4_000)))
	NewWithT(t).Expect(inherit.Problems(err)).To(HaveLen(5_000 - len(admitted.Top.Labels)))
}

// An owner may declare as much as an object has room for. To judge it takes no longer than to read it, and to tell of it even less.
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
	admitted, err := inherit.Admissible(machine, inherit.Object{Top: declared}, func() inherit.Object { return machine }, nil)
	Expect(admitted.Top.Taints).To(HaveLen(64))
	Expect(admitted.Top.Fields.ReadinessGates).To(HaveLen(32))
	said := inherit.Sources{All: []inherit.Declaration{{Ref: inherit.Ref{Kind: "ControlPlane", Object: &clusterv1.Machine{}}, Content: declared, Paths: machine.Layout.Top}}}.Located(err)
	Expect(inherit.Problems(said)).To(HaveLen(11))
	Expect(inherit.Problems(said)[10]).To(MatchError(fmt.Sprint(len(inherit.Problems(err))-10, " more")))
}
