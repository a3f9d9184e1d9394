// SPDX-License-Identifier: Apache-2.0

package policy_test

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
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
)

// tooMany is for how many verbose Machines there is no room in all parts together.
const tooMany = 130

// sure reports whether a Node gets what it inherits at its registration also where the parameters are in several parts: it
// brings a providerID or comes again, or its Machine has every name and address that it brings.
func sure(node *corev1.Node, m *clusterv1.Machine) bool {
	if m.Status.NodeRef.Name != "" || m.Spec.ProviderID != "" && m.Spec.ProviderID == node.Spec.ProviderID {
		return true
	}
	names := inherit.MachineNames(m)
	return node.Spec.ProviderID == "" && !slices.ContainsFunc(inherit.NodeNames(node), func(name string) bool { return !slices.Contains(names, name) })
}

// TestPartsNeverContradictTheRules holds for every fleet, every Node, every number of parts and in every order: a Node gets what
// the rules say, or nothing; never another Machine's, and never some of it.
func TestPartsNeverContradictTheRules(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	d := dice{rand.New(rand.NewPCG(2026, 9))}
	served, left := 0, 0
	for i := range 400 {
		var machines []inherit.Machine
		for range 1 + d.IntN(6) {
			machines = append(machines, d.behind(d.machine(d.IntN(1000))))
		}
		rules := inherit.Policy{AdditionalLabels: []*regexp.Regexp{regexp.MustCompile(d.pick("^$", "team"))}}
		node := d.node()
		want, m := expected(node, machines, rules)
		parts, err := policy.InParts([]int{2, 4, 16}[d.IntN(3)], fleet, machines, rules)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		once := e.register(node, d.shuffled(parts)...)
		got := inherit.OfNode(once)
		switch {
		case m == nil || !sure(node, m):
			if !got.Equal(inherit.OfNode(node)) && !got.Equal(want) {
				t.Fatalf("run %d: Node %+v got %+v and should have nothing, or %+v\n%v", i, node, got, want, parts)
			}
			left++
		case !got.Equal(want):
			t.Fatalf("run %d: Node %+v got\n%+v\nwant\n%+v\n%v", i, node, got, want, parts)
		default:
			served++
		}
		// An API server invokes each part again once one has changed the Node.
		if again := inherit.OfNode(e.register(once, d.shuffled(parts)...)); !again.Equal(got) {
			t.Fatalf("run %d: to be invoked again changes the Node %+v\ngot  %+v\nwant %+v", i, node, again, got)
		}
	}
	NewWithT(t).Expect(served).To(BeNumerically(">", 40), "the dice make Nodes that are served")
	NewWithT(t).Expect(left).To(BeNumerically(">", 40), "the dice make Nodes that are left")
}

func (d dice) shuffled(parts []*corev1.ConfigMap) []*corev1.ConfigMap {
	parts = slices.Clone(parts)
	d.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return parts
}

// What a Node gets of a large fleet, by what it brings.
func TestWhatANodeOfALargeFleetGets(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	machines := instances(1000)
	orphan := machines[5]
	orphan.Spec.ProviderID, orphan.Status.NodeRef.Name, orphan.Labels = "", "again", map[string]string{"node.cluster.x-k8s.io/orphan": ""}
	parts := partsOf(t, machines...)
	NewWithT(t).Expect(parts).To(HaveLen(4))
	with := func(node *corev1.Node, providerID string) *corev1.Node {
		node.Spec.ProviderID = providerID
		return node
	}
	for _, tc := range []struct {
		name string
		node *corev1.Node
		want bool
	}{
		{name: "by its providerID, whatever its name", node: with(nodeNamed("x"), machines[700].Spec.ProviderID), want: true},
		{name: "by its name", node: nodeNamed("workers-00007"), want: true},
		{name: "by its name and its address", node: anonymous("workers-00007", "10.0.0.7"), want: true},
		{name: "by its address, with a name that may be another Machine's: it waits for the loop", node: anonymous("x", "10.0.0.7")},
		{name: "by its name, with an address that is another Machine's", node: anonymous("workers-00007", "10.0.0.8")},
		{name: "by its name, with a providerID that no Machine has", node: with(nodeNamed("workers-00007"), "x")},
		{name: "again", node: nodeNamed("again"), want: true},
		{name: "again, and it counts before another Machine's providerID", node: with(nodeNamed("again"), machines[700].Spec.ProviderID), want: true},
		{name: "nobody", node: nodeNamed("x")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			want, m := expected(tc.node, complete(machines...), inherit.Policy{})
			got := inherit.OfNode(e.register(tc.node, parts...))
			Expect(got.Equal(inherit.OfNode(tc.node))).To(Equal(!tc.want))
			if tc.want {
				Expect(m).NotTo(BeNil())
				Expect(got.Equal(want)).To(BeTrue(), "got %+v\nwant %+v", got, want)
			}
		})
	}
}

// Machines that a Node may be mistaken for one another by are in one part.
func TestMachinesWithSomethingInCommonAreTogether(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	for first := range 20 {
		machines := instances(1000)
		machines[first].Status.Addresses = append(machines[first].Status.Addresses, machines[999].Status.Addresses[1])
		node := nodeNamed(machines[999].Status.Addresses[1].Address)
		got := e.register(node, partsOf(t, machines...)...)
		NewWithT(t).Expect(got.Spec.Taints).To(BeEmpty(), "it may be either")
	}
}

// A change of one Machine of a thousand writes one part of the parameters, which is small.
func TestAChangeOfOneMachineWritesOnePart(t *testing.T) {
	t.Parallel()
	w := newWorkload(t)
	machines := instances(1000)
	w.Expect(w.ensure(machines...)).Error().To(Succeed())
	w.Expect(w.writes).To(HaveLen(len(everything()) + 3))
	for _, number := range []int{0, 500, 999} {
		machines[number].Labels = map[string]string{"node.cluster.x-k8s.io/new": ""}
		w.expectOnePart(machines)
	}
	machines = append(machines, instance(1000))
	w.expectOnePart(machines)
	machines[1000].Status.NodeRef.Name = "workers-01000"
	w.expectOnePart(machines)
	machines[1000].Status.Addresses[0].Address = "10.0.200.1"
	w.expectOnePart(machines)
	w.expectOnePart(machines[1:])
}

func (w *workload) expectOnePart(machines []*clusterv1.Machine) {
	w.t.Helper()
	w.writes, w.written = nil, 0
	w.Expect(w.ensure(machines...)).Error().To(Succeed())
	w.Expect(w.writes).To(HaveExactElements(HavePrefix("apply ConfigMap nodes.heirloom.dev-")))
	w.Expect(w.written).To(And(BeNumerically(">", 10<<10), BeNumerically("<", 100<<10)), "bytes")
	w.expect(nil, machines...)
}

// bound returns the parameters that the binding selects, as an API server does.
func (w *workload) bound() []*corev1.ConfigMap {
	w.t.Helper()
	binding, all := policy.Binding(1), &corev1.ConfigMapList{}
	w.Expect(w.WithWatch.Get(w.t.Context(), client.ObjectKeyFromObject(binding), binding)).To(Succeed())
	w.Expect(w.WithWatch.List(w.t.Context(), all, client.InNamespace(binding.Spec.ParamRef.Namespace),
		client.MatchingLabels(binding.Spec.ParamRef.Selector.MatchLabels))).To(Succeed())
	var parts []*corev1.ConfigMap
	for i := range all.Items {
		parts = append(parts, &all.Items[i])
	}
	return parts
}

// While the number of parts changes, a Node registers as before and after, whichever binding an API server knows.
func TestANodeRegistersWhileTheNumberOfPartsChanges(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ from, to, before, after int }{{10, 1000, 1, 4}, {1000, 5000, 4, 16}, {5000, 10, 16, 1}} {
		t.Run(fmt.Sprintf("from %d to %d", tc.before, tc.after), func(t *testing.T) {
			w, e := newWorkload(t), newEvaluator(t)
			node := nodeNamed("workers-00007")
			want, _ := expected(node, complete(instances(10)...), inherit.Policy{})
			registers := func() {
				w.Expect(inherit.OfNode(e.register(node, w.bound()...)).Equal(want)).To(BeTrue())
			}
			w.Expect(w.ensure(instances(tc.from)...)).Error().To(Succeed())
			old := w.bound()
			w.Expect(old).To(HaveLen(tc.before))
			w.before["apply ConfigMap"], w.before["apply MutatingAdmissionPolicyBinding"] = registers, registers
			w.Expect(w.ensure(instances(tc.to)...)).Error().To(Succeed())
			w.Expect(w.before).To(BeEmpty())
			registers()
			w.Expect(w.bound()).To(HaveLen(tc.after))
			for _, part := range old {
				w.Expect(w.WithWatch.Get(t.Context(), client.ObjectKeyFromObject(part), part)).To(Succeed(), "an API server may still look at it")
			}

			w.expect(nil, instances(tc.to)...)
			w.writes, w.now = nil, muchLater
			w.Expect(w.ensure(instances(tc.to)...)).Error().To(Succeed())
			w.Expect(w.writes).To(And(HaveLen(tc.before), HaveEach(HavePrefix("delete ConfigMap "))), "later they go")
			w.expect(nil, instances(tc.to)...)
			w.Expect(remove(w)).To(Succeed())
			all := &corev1.ConfigMapList{}
			w.Expect(w.List(t.Context(), all)).To(Succeed())
			w.Expect(all.Items).To(BeEmpty())
		})
	}
}

// A fleet that grows and shrinks a little is not divided anew each time.
func TestTheNumberOfPartsStays(t *testing.T) {
	bound := 1
	var seen []int
	for _, count := range []int{300, 400, 420, 380, 300, 250, 150, 90, 150, 300, 400} {
		parts, err := policy.Parameters(fleet, complete(instances(count)...), inherit.Policy{}, bound)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		bound = len(parts)
		seen = append(seen, bound)
	}
	NewWithT(t).Expect(seen).To(Equal([]int{1, 2, 2, 2, 2, 2, 1, 1, 1, 1, 2}))
}

// What somebody writes into the binding is put right, and is no number of parts.
func TestABindingToSomethingElse(t *testing.T) {
	for _, parts := range []string{"0", "-1", "17", "many", ""} {
		w := newWorkload(t)
		w.expect(everything(), instance(1))
		binding := policy.Binding(1)
		w.Expect(w.Get(t.Context(), client.ObjectKeyFromObject(binding), binding)).To(Succeed())
		binding.Spec.ParamRef.Selector.MatchLabels["heirloom.dev/parts"] = parts
		w.Expect(w.Update(t.Context(), binding)).To(Succeed())
		w.expect([]string{"apply MutatingAdmissionPolicyBinding nodes.heirloom.dev"}, instance(1))
		w.expect(nil, instance(1))
	}
}

// A content that all share does not divide the parameters for ever, and each part has it.
func TestPartsOfFewMachines(t *testing.T) {
	Expect := NewWithT(t).Expect
	machines := instances(3)
	for _, m := range machines {
		m.Annotations = map[string]string{"node.cluster.x-k8s.io/story": strings.Repeat("x", 200<<10)}
		m.Spec.Taints = []clusterv1.MachineTaint{}
	}
	parts := partsOf(t, machines...)
	Expect(parts).To(HaveLen(4), "there is little to divide")
	e, names := newEvaluator(t), map[string]bool{}
	for _, m := range machines {
		Expect(e.register(nodeNamed(m.Name), parts...).Annotations).To(HaveKey("node.cluster.x-k8s.io/story"))
	}
	for _, part := range parts {
		names[part.Name] = true
		Expect(part.Data).To(HaveKey("part"))
	}
	Expect(slices.Sorted(maps.Keys(names))).To(Equal([]string{
		"nodes.heirloom.dev-1-of-4", "nodes.heirloom.dev-2-of-4", "nodes.heirloom.dev-3-of-4", "nodes.heirloom.dev-4-of-4",
	}))
}
