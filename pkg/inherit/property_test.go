// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// TestMain makes every run try the same thousand cases of each property. Others: go test ./pkg/inherit -rapid.seed=0 -rapid.checks=100000
func TestMain(m *testing.M) {
	_ = flag.Set("rapid.seed", "1")
	_ = flag.Set("rapid.checks", "1000")
	flag.Parse()
	_ = flag.Set("test.short", "false") // with which rapid tries a fifth
	m.Run()
}

// Machines and Nodes are made out of few words, so that they meet often.
const (
	aKey = `(node-role\.kubernetes\.io/a|node-restriction\.kubernetes\.io/b|node\.cluster\.x-k8s\.io/c|x\.node\.cluster\.x-k8s\.io/d|` +
		`team|cost\.example\.com/e|cluster\.x-k8s\.io/interruptible|topology\.kubernetes\.io/zone|heirloom\.dev/f)`
	aPair  = aKey + `=[12]?`
	aTaint = `(a|b|example\.com/c)(=1|=2)?:(NoSchedule|NoExecute)`
)

// some is the pattern of a list.
func some(what, separator string) string { return "(" + what + separator + "){0,4}" }

func oneOf[T any](t *rapid.T, all ...T) T { return rapid.SampledFrom(all).Draw(t, "") }

// taintsLike are taints as API servers store them, each key and effect once.
func taintsLike(pattern string) *rapid.Generator[string] {
	all := rapid.SliceOfNDistinct(rapid.StringMatching(pattern), 0, 4, func(s string) taint.ID { return taint.MachineID(declared(s)[0]) })
	return rapid.Map(all, func(all []string) string { return strings.Join(all, ",") })
}

// declaring is what a Machine or a template declares.
var declaring = rapid.Custom(func(t *rapid.T) content {
	return content{
		labels: rapid.StringMatching(some(aPair, ",")).Draw(t, ""),
		taints: taintsLike(aTaint+"(@OnInitialization)?").Draw(t, ""),
		annotations: rapid.StringMatching(some(aPair, ";")+
			";taints\\.heirloom\\.dev/always="+some(aTaint, ",")+";taints\\.heirloom\\.dev/initialize="+some(aTaint, ",")).Draw(t, ""),
	}
})

// inheriting is what a Node has.
var inheriting = rapid.Custom(func(t *rapid.T) content {
	return content{
		labels: rapid.StringMatching(some(aPair, ",")).Draw(t, ""),
		taints: taintsLike(aTaint).Draw(t, ""),
		annotations: rapid.StringMatching(some(aPair, ";")+";capi/labels="+some(aKey, ",")+";capi/annotations="+some(aKey, ",")+
			";own/labels="+some(aKey, ",")+";own/annotations="+some(aKey, ",")+
			"(;capi/taints="+some(aTaint, ",")+")?(;own/taints="+some(aTaint, ",")+")?(;heirloom\\.dev/uninitialized=added)?").Draw(t, ""),
	}
})

var policies = rapid.Custom(func(t *rapid.T) inherit.Policy {
	return inherit.Policy{
		ClusterAPITaints:      inherit.TaintPropagation(rapid.IntRange(0, 2).Draw(t, "")),
		AdditionalLabels:      regexes(oneOf(t, "^$", "team", "cost", ".*")),
		AdditionalAnnotations: regexes(oneOf(t, "^$", "team", "cost", ".*")),
	}
})

// TestNodeProperties holds for every Machine and Node: to inherit twice is to inherit once, also ahead of the Machine, nothing that was
// handed in changes, and a kubelet's write brings no label that NodeRestriction would refuse. No write leaves a Node without labels or
// annotations: a merge patch would take away all of them, also those that the cache does not have.
func TestNodeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		machine, node, policy := declaring.Draw(t, "Machine"), inheriting.Draw(t, "Node"), policies.Draw(t, "policy")
		m, before := machine.machine(), node.node()

		once, _ := policy.Node(inherit.SourceOfMachine(m), before, inherit.Privileged)
		twice, _ := policy.Node(inherit.SourceOfMachine(m), once, inherit.Privileged)
		registered, _ := policy.Node(inherit.SourceOfMachine(m), before, inherit.Kubelet)
		ahead := inherit.SourceOfMachine(m).AheadOf(declaring.Draw(t, "Machine so far").machine())
		first, _ := policy.Node(ahead, before, inherit.Privileged)
		second, _ := policy.Node(ahead, first, inherit.Privileged)

		fail := func(reason string) {
			t.Fatalf("%s\nonce %q\ntwice %q\nregistered %q", reason, describe(once), describe(twice), describe(registered))
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
	})
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
