// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// dice makes Machines and Nodes out of few words, so that they meet often.
type dice struct{ *rand.Rand }

func (d dice) pick(words ...string) string { return words[d.IntN(len(words))] }

func (d dice) some(separator string, make func() string) string {
	var all []string
	for range d.IntN(5) {
		all = append(all, make())
	}
	return strings.Join(all, separator)
}

func (d dice) key() string {
	return d.pick("node-role.kubernetes.io/a", "node-restriction.kubernetes.io/b", "node.cluster.x-k8s.io/c", "x.node.cluster.x-k8s.io/d",
		"team", "cost.example.com/e", "cluster.x-k8s.io/interruptible", "topology.kubernetes.io/zone", "heirloom.dev/f")
}

func (d dice) pair() string { return d.key() + "=" + d.pick("", "1", "2") }

func (d dice) taint() string {
	return d.pick("a", "b", "example.com/c") + d.pick("", "=1", "=2") + ":" + d.pick("NoSchedule", "NoExecute")
}

func (d dice) content(tracked bool) content {
	c := content{
		labels:      d.some(",", d.pair),
		taints:      d.some(",", func() string { return d.taint() + d.pick("", "@OnInitialization") }),
		annotations: d.some(";", d.pair),
	}
	if !tracked {
		for _, name := range []string{"always", "initialize"} {
			c.annotations += ";taints.heirloom.dev/" + name + "=" + d.some(",", d.taint)
		}
		return c
	}
	c.taints = taint.FormatList(taint.Sync(nil, taint.Merge(declared(c.taints), nil), nil, false)) // each key and effect once
	for _, name := range []string{"capi/labels", "capi/annotations", "own/labels", "own/annotations"} {
		c.annotations += ";" + name + "=" + d.some(",", d.key)
	}
	for _, name := range []string{"capi/taints", "own/taints"} {
		if d.IntN(3) > 0 {
			c.annotations += ";" + name + "=" + d.some(",", d.taint)
		}
	}
	c.annotations += d.pick("", "; heirloom.dev/uninitialized=added")
	return c
}

func (d dice) policy() inherit.Policy {
	return inherit.Policy{
		ClusterAPITaints:      inherit.TaintPropagation(d.IntN(3)),
		AdditionalLabels:      regexes(d.pick("^$", "team", "cost", ".*")),
		AdditionalAnnotations: regexes(d.pick("^$", "team", "cost", ".*")),
	}
}

// TestNodeProperties holds for every Machine and Node: to inherit twice is to inherit once, also ahead of the Machine, nothing that was
// handed in changes, and a kubelet's write brings no label that NodeRestriction would refuse. No write leaves a Node without labels or
// annotations: a merge patch would take away all of them, also those that the cache does not have.
func TestNodeProperties(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(2026, 11))}
	for i := range 2000 {
		machine, node, policy := d.content(false), d.content(true), d.policy()
		m, before := machine.machine(), node.node()

		once, _ := policy.Node(inherit.SourceOfMachine(m), before, inherit.Privileged)
		twice, _ := policy.Node(inherit.SourceOfMachine(m), once, inherit.Privileged)
		registered, _ := policy.Node(inherit.SourceOfMachine(m), before, inherit.Kubelet)
		ahead := inherit.SourceOfMachine(m).AheadOf(d.content(false).machine())
		first, _ := policy.Node(ahead, before, inherit.Privileged)
		second, _ := policy.Node(ahead, first, inherit.Privileged)

		fail := func(reason string) {
			t.Fatalf("run %d: %s\nMachine %+v\nNode %+v\nonce %q\ntwice %q\nregistered %q", i, reason, machine, node,
				describe(once), describe(twice), describe(registered))
		}
		if !twice.Equal(once) || !second.Equal(first) {
			fail("to inherit twice is not to inherit once")
		}
		if bare(before, once) {
			fail("a write leaves the Node without labels or annotations")
		}
		if fmt.Sprint(m) != fmt.Sprint(machine.machine()) || !before.Equal(node.node()) {
			fail("an input was mutated")
		}
		for key, value := range registered.Labels {
			if now, had := before.Labels[key]; strings.Contains(key, "kubernetes.io/") && (!had || now != value) {
				fail("a kubelet may not write " + key)
			}
		}
		if hasTwice(before) || hasTwice(once) || hasTwice(registered) {
			fail("a taint is there twice")
		}
	}
}

// bare reports whether a write leaves a Node without any labels or annotations.
func bare(before, after inherit.NodeState) bool {
	return !after.Equal(before) && (len(after.Labels) == 0 || len(after.Annotations) == 0)
}

// hasTwice reports whether two taints have one key and effect, which an API server refuses.
func hasTwice(s inherit.NodeState) bool {
	seen := map[taint.ID]bool{}
	for _, t := range s.Taints {
		if seen[taint.IDOf(t)] {
			return true
		}
		seen[taint.IDOf(t)] = true
	}
	return false
}

func TestTenThousandKeys(t *testing.T) {
	Expect := NewWithT(t).Expect
	m, ms := &clusterv1.Machine{}, &clusterv1.MachineSet{}
	m.Labels, m.Annotations = map[string]string{}, map[string]string{}
	for i := range 10_000 {
		key := fmt.Sprintf("node.cluster.x-k8s.io/key-%05d", i)
		m.Labels[key], m.Annotations[key] = "x", "y"
	}
	ms.Spec.Template.Labels, ms.Spec.Template.Annotations = m.Labels, m.Annotations

	inherited, err := withProblems(inherit.Policy{}.MachineFrom(inherit.TemplateOfMachineSet(ms), &clusterv1.Machine{}))
	Expect(err).NotTo(HaveOccurred())
	Expect(inherited.Top.Labels).To(HaveLen(10_000))
	Expect(inherited.Top.Annotations).To(HaveLen(10_000))

	_, err = withProblems(inherit.Policy{}.Node(inherit.SourceOfMachine(m), content{}.node(), inherit.Privileged))
	Expect(err).To(MatchError(ContainSubstring("a Node has no room for all of them")))
}

func TestAsManyKeysAsANodeHasRoomFor(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := &clusterv1.Machine{}
	m.Labels, m.Annotations = map[string]string{}, map[string]string{}
	for i := range 6_000 {
		key := fmt.Sprintf("node.cluster.x-k8s.io/key-%05d", i)
		m.Labels[key] = "x"
		if i < 1_000 {
			m.Annotations[key] = "y"
		}
	}
	node, err := withProblems(inherit.Policy{}.Node(inherit.SourceOfMachine(m), content{}.node(), inherit.Privileged))
	Expect(err).NotTo(HaveOccurred())
	Expect(unrecorded(node).Labels).To(HaveLen(6_000))
	Expect(strings.Split(node.Annotations["cluster.x-k8s.io/labels-from-machine"], ",")).To(HaveLen(6_000))
	again, err := withProblems(inherit.Policy{}.Node(inherit.SourceOfMachine(m), node, inherit.Privileged))
	Expect(err).NotTo(HaveOccurred())
	Expect(again.Equal(node)).To(BeTrue())

	empty, err := withProblems(inherit.Policy{}.Node(inherit.SourceOfMachine(&clusterv1.Machine{}), node, inherit.Privileged))
	Expect(err).NotTo(HaveOccurred())
	Expect(unrecorded(empty).Labels).To(BeEmpty())
	Expect(describeMap("", empty.Annotations)).To(HaveLen(3), "what is left is Cluster API's three records, two of them empty")
}
