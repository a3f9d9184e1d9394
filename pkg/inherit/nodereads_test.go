// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// TestLabelsReadDecideAll holds for every Machine and Node: with only the labels that the rules read, a Node gets and loses the same.
func TestLabelsReadDecideAll(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(2026, 14))}
	dropped := 0
	for i := range 4000 {
		machine, node, policy := d.content(false), d.content(true), d.policy()
		for range d.IntN(4) {
			node.labels += "," + d.pick("kubernetes.io/arch", "team", "topology.kubernetes.io/zone", "cost.example.com/e") + "=" + d.pick("1", "2")
		}
		full := node.node()
		if d.IntN(2) > 0 { // as the loop leaves it, with its records
			full, _ = policy.Node(inherit.SourceOfMachine(machine.machine()), full, inherit.Privileged)
			machine, policy = d.content(false), d.policy()
		}
		trimmed := full
		stored := &corev1.Node{}
		stored.Labels, stored.Annotations = full.Labels, full.Annotations
		trimmed.Labels = policy.LabelsRead(stored)
		dropped += len(full.Labels) - len(trimmed.Labels)

		from := inherit.SourceOfMachine(machine.machine())
		whole, problems := policy.Node(from, full, inherit.Privileged)
		part, sameProblems := policy.Node(from, trimmed, inherit.Privileged)
		maps.DeleteFunc(whole.Labels, func(key, value string) bool {
			_, kept := trimmed.Labels[key]
			now, had := full.Labels[key]
			return had && !kept && now == value // it was not read, and it stays
		})
		if !part.Equal(whole) || fmt.Sprint(problems) != fmt.Sprint(sameProblems) {
			t.Fatalf("run %d: Machine %+v\nNode %q\nread %q\nbecomes %q\nand with all labels %q", i, machine, describe(full), describe(trimmed),
				describe(part), describe(whole))
		}
		if fmt.Sprint(policy.Unlabelled(from, full)) != fmt.Sprint(policy.Unlabelled(from, trimmed)) {
			t.Fatalf("run %d: another Node misses labels", i)
		}
	}
	if dropped < 1000 {
		t.Fatalf("only %d labels were not read", dropped)
	}
}
