// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// TestMain draws a seed for each run, and prints it. A failure prints how to repeat it.
func TestMain(m *testing.M) {
	_ = flag.Set("rapid.seed", strconv.FormatInt(time.Now().UnixNano(), 10))
	_ = flag.Set("rapid.checks", "1000")
	flag.Parse()
	_ = flag.Set("test.short", "false") // with -short, rapid tries a fifth
	fmt.Println("-rapid.seed=" + flag.Lookup("rapid.seed").Value.String())
	m.Run()
}

// Machines and Nodes draw from few words, so that they often have the same entries.
const (
	aKey = `(node-role\.kubernetes\.io/a|node-restriction\.kubernetes\.io/b|node\.cluster\.x-k8s\.io/c|x\.node\.cluster\.x-k8s\.io/d|` +
		`team|cost\.example\.com/e|cluster\.x-k8s\.io/interruptible|topology\.kubernetes\.io/zone|heirloom\.dev/f)`
	aPair  = aKey + `=[12]?`
	aTaint = `(a|b|example\.com/c)(=1|=2)?:(NoSchedule|NoExecute)`
)

// some returns the pattern of a list.
func some(what, separator string) string { return "(" + what + separator + "){0,4}" }

func oneOf[T any](t *rapid.T, all ...T) T { return rapid.SampledFrom(all).Draw(t, "") }

// taintsLike generates taints as API servers store them: each key and effect once.
func taintsLike(pattern string) *rapid.Generator[string] {
	all := rapid.SliceOfNDistinct(rapid.StringMatching(pattern), 0, 4, func(s string) taint.ID { return taint.MachineID(declared(s)[0]) })
	return rapid.Map(all, func(all []string) string { return strings.Join(all, ",") })
}

// declaring generates the declarations of a Machine or a template.
var declaring = rapid.Custom(func(t *rapid.T) content {
	return content{
		labels: rapid.StringMatching(some(aPair, ",")).Draw(t, ""),
		taints: taintsLike(aTaint+"(@OnInitialization)?").Draw(t, ""),
		annotations: rapid.StringMatching(some(aPair, ";")+
			";taints\\.heirloom\\.dev/always="+some(aTaint, ",")+";taints\\.heirloom\\.dev/initialize="+some(aTaint, ",")).Draw(t, ""),
	}
})

// inheriting generates the content of a Node.
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

// For every Machine and Node: inheriting twice equals inheriting once, also ahead of the Machine; no input changes; and a kubelet's
// write gets no label that NodeRestriction would refuse. No write leaves a Node without labels or annotations: a merge patch would
// remove all of them, also the labels that the cache lacks.
func TestNodeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		machine, node, policy := declaring.Draw(t, "Machine"), inheriting.Draw(t, "Node"), policies.Draw(t, "policy")
		m, before := machine.machine(), node.node()

		once, _ := planned(policy, inherit.SourceOfMachine(m), before, privileged)
		twice, _ := planned(policy, inherit.SourceOfMachine(m), once, privileged)
		registered, _ := planned(policy, inherit.SourceOfMachine(m), before, kubelet)
		reviewed, _ := planned(policy, inherit.SourceOfMachine(m), registered, kubelet) // after another webhook
		ahead := inherit.SourceOfMachine(m).AheadOf(declaring.Draw(t, "Machine so far").machine())
		first, _ := planned(policy, ahead, before, privileged)
		second, _ := planned(policy, ahead, first, privileged)

		fail := func(reason string) {
			t.Fatalf("%s\nonce %q\ntwice %q\nregistered %q", reason, describe(once), describe(twice), describe(registered))
		}
		if !twice.Equal(once) || !second.Equal(first) || !reviewed.Equal(registered) {
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

// hasTwice reports whether two taints have the same key and effect, which an API server refuses.
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

// For every Machine and Node, a Node with only the labels that the rules read gets the same patch and the same problems.
func TestLabelsReadSuffice(t *testing.T) {
	unread := 0
	rapid.Check(t, func(t *rapid.T) {
		stored, policy := inheriting.Draw(t, "Node"), policies.Draw(t, "policy")
		stored.labels += "," + rapid.StringMatching(some(foreign, ",")).Draw(t, "others' labels")
		m, full := declaring.Draw(t, "Machine").machine(), stored.node()
		if rapid.Bool().Draw(t, "as the loop leaves it, with its records") {
			full, _ = planned(policy, inherit.SourceOfMachine(m), full, privileged)
			m, policy = declaring.Draw(t, "Machine").machine(), policies.Draw(t, "policy")
		}
		node := &corev1.Node{}
		node.Labels, node.Annotations = full.Labels, full.Annotations
		read := full
		read.Labels = policy.LabelsRead(node)
		unread += len(full.Labels) - len(read.Labels)

		from := inherit.SourceOfMachine(m)
		whole, problems := withProblems(planned(policy, from, full, privileged))
		part, sameProblems := withProblems(planned(policy, from, read, privileged))
		if made, want := patchOf(read, part), patchOf(full, whole); made != want || fmt.Sprint(problems) != fmt.Sprint(sameProblems) {
			t.Fatalf("made %.2000s: %v\nwant %.2000s: %v", made, sameProblems, want, problems)
		}
		if unlabeled(policy, from, full) != unlabeled(policy, from, read) || part.Equal(read) != whole.Equal(full) {
			t.Fatal("the Node seems to miss something else")
		}
	})
	if unread < 1000 {
		t.Fatalf("only %d labels were not read", unread)
	}
}

func unlabeled(policy inherit.Policy, from inherit.NodeSource, s inherit.NodeState) bool {
	return policy.PlanNode(old(s), from, inherit.Turn{}).Unlabeled
}

// foreign is the pattern of labels that others write.
const foreign = `(kubernetes\.io/arch|team|topology\.kubernetes\.io/zone|csi\.volume\.kubernetes\.io/nodeid|cluster\.x-k8s\.io/machine)=(1|2|3{60})`

// patchOf describes the changes between two states.
func patchOf(from, to inherit.NodeState) string {
	changes := map[string]string{}
	for name, maps := range map[string][2]map[string]string{"label ": {from.Labels, to.Labels}, "annotation ": {from.Annotations, to.Annotations}} {
		for key := range maps[0] {
			if _, stays := maps[1][key]; !stays {
				changes[name+key] = "removed"
			}
		}
		for key, value := range maps[1] {
			if now, had := maps[0][key]; !had || now != value {
				changes[name+key] = "set to " + value
			}
		}
	}
	return fmt.Sprint(changes, to.Taints)
}

// LabelsRead is fast for the largest Node that an API server may send. A search for each key in each list would take seconds.
func TestLabelsReadOfTheWorstNode(t *testing.T) {
	node := &corev1.Node{}
	node.Labels, node.Annotations = map[string]string{}, map[string]string{}
	for i := range 200_000 { // a search for each label in each list would take a quarter of an hour
		node.Labels[fmt.Sprintf("example.com/%d", i)] = ""
	}
	for _, name := range inherit.TrackingAnnotations {
		node.Annotations[name] = strings.Repeat("example.com/x,", 256<<10/14)
	}
	node.Annotations[inherit.LabelsFromMachineAnnotation] = "example.com/1, example.com/2"
	if read := (inherit.Policy{}).LabelsRead(node); len(read) != 2 {
		t.Fatalf("%d labels", len(read))
	}
	node.Annotations[inherit.LabelsFromMachineAnnotation] += strings.Repeat(" ", 256<<10)
	if read := (inherit.Policy{}).LabelsRead(node); len(read) != 0 {
		t.Fatalf("%d labels by a list that no API server stores", len(read))
	}
}
