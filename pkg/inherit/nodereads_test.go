// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// TestWhatIsReadOfANodeDecides holds for every Machine and Node: with only the labels and annotations that the rules read, the same
// patch is made and the same is left out.
func TestWhatIsReadOfANodeDecides(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(2026, 14))}
	unread := 0
	for i := range 4000 {
		machine, stored, policy := d.content(false), d.content(true), d.policy()
		stored.labels += "," + d.some(",", d.foreign)
		stored.annotations += ";" + d.some(";", d.foreign)
		m, full := machine.machine(), stored.node()
		if d.IntN(2) > 0 { // as the loop leaves it, with its records
			full, _ = policy.Node(inherit.SourceOfMachine(m), full, inherit.Privileged)
			m, policy = d.content(false).machine(), d.policy()
		}
		if d.IntN(20) == 0 { // the Node has hardly room for both
			m.Annotations["node.cluster.x-k8s.io/c"] = strings.Repeat("x", 256<<10-sizeOf(full.Annotations)-d.IntN(400))
		}
		node := &corev1.Node{}
		node.Labels, node.Annotations = full.Labels, full.Annotations
		read := full
		read.Labels, read.Annotations = policy.LabelsRead(node), policy.AnnotationsRead(node)
		unread += len(full.Labels) + len(full.Annotations) - len(read.Labels) - len(read.Annotations)

		from := inherit.SourceOfMachine(m)
		whole, problems := policy.Node(from, full, inherit.Privileged)
		part, sameProblems := policy.Node(from, read, inherit.Privileged)
		if made, want := patchOf(read, part), patchOf(full, whole); made != want || fmt.Sprint(problems) != fmt.Sprint(sameProblems) {
			t.Fatalf("run %d: Machine %+v\nNode %+v\nmade %.2000s: %v\nwant %.2000s: %v", i, machine, stored, made, sameProblems, want, problems)
		}
		if policy.Unlabelled(from, full) != policy.Unlabelled(from, read) || part.Equal(read) != whole.Equal(full) {
			t.Fatalf("run %d: the Node seems to miss something else", i)
		}
	}
	if unread < 4000 {
		t.Fatalf("only %d labels and annotations were not read", unread)
	}
}

// foreign is a label or an annotation that others write.
func (d dice) foreign() string {
	key := d.pick("kubernetes.io/arch", "team", "topology.kubernetes.io/zone", "csi.volume.kubernetes.io/nodeid", "cluster.x-k8s.io/machine")
	return key + "=" + d.pick("1", "2", strings.Repeat("3", 60))
}

func sizeOf(annotations map[string]string) int {
	size := 0
	for key, value := range annotations {
		size += len(key) + len(value)
	}
	return size
}

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
