// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// TestWhatIsReadOfANodeDecides holds for every Machine and Node: with only the labels that the rules read, the same
// patch is made and the same is left out.
func TestWhatIsReadOfANodeDecides(t *testing.T) {
	unread := 0
	rapid.Check(t, func(t *rapid.T) {
		stored, policy := inheriting.Draw(t, "Node"), policies.Draw(t, "policy")
		stored.labels += "," + rapid.StringMatching(some(foreign, ",")).Draw(t, "others' labels")
		m, full := declaring.Draw(t, "Machine").machine(), stored.node()
		if rapid.Bool().Draw(t, "as the loop leaves it, with its records") {
			full, _ = policy.Node(inherit.SourceOfMachine(m), full, inherit.Privileged)
			m, policy = declaring.Draw(t, "Machine").machine(), policies.Draw(t, "policy")
		}
		node := &corev1.Node{}
		node.Labels, node.Annotations = full.Labels, full.Annotations
		read := full
		read.Labels = policy.LabelsRead(node)
		unread += len(full.Labels) - len(read.Labels)

		from := inherit.SourceOfMachine(m)
		whole, problems := withProblems(policy.Node(from, full, inherit.Privileged))
		part, sameProblems := withProblems(policy.Node(from, read, inherit.Privileged))
		if made, want := patchOf(read, part), patchOf(full, whole); made != want || fmt.Sprint(problems) != fmt.Sprint(sameProblems) {
			t.Fatalf("made %.2000s: %v\nwant %.2000s: %v", made, sameProblems, want, problems)
		}
		if policy.Unlabelled(from, full) != policy.Unlabelled(from, read) || part.Equal(read) != whole.Equal(full) {
			t.Fatal("the Node seems to miss something else")
		}
	})
	if unread < 1000 {
		t.Fatalf("only %d labels were not read", unread)
	}
}

// foreign is a label that others write.
const foreign = `(kubernetes\.io/arch|team|topology\.kubernetes\.io/zone|csi\.volume\.kubernetes\.io/nodeid|cluster\.x-k8s\.io/machine)=(1|2|3{60})`

// patchOf is what turns a state into another.
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

// The worst Node that its API server may send keeps nobody busy. It took seconds to look for each key in each list.
func TestLabelsReadOfTheWorstNode(t *testing.T) {
	node := &corev1.Node{}
	node.Labels, node.Annotations = map[string]string{}, map[string]string{}
	for i := range 200_000 { // if each were searched in each list, this would take a quarter of an hour
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

// To read a Node takes eight times as much for a Node that is eight times as long.
func TestTheCostOfLabelsReadGrowsWithTheNode(t *testing.T) {
	size := func(n int) float64 {
		node, keys := &corev1.Node{}, make([]string, n)
		node.Labels, node.Annotations = map[string]string{}, map[string]string{}
		for i := range keys {
			keys[i] = fmt.Sprintf("example.com/%d", i)
			node.Labels[keys[i]] = ""
		}
		for _, name := range inherit.TrackingAnnotations {
			node.Annotations[name] = strings.Join(keys, ",")
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		inherit.Policy{}.LabelsRead(node)
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	few, eightfold := size(500), size(4000)
	if few == 0 || eightfold/few > 16 {
		t.Fatalf("%v bytes for 500 labels, %v for 4000", few, eightfold)
	}
}
