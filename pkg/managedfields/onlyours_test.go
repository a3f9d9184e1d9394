// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// TestOnlyOursIsLeft tells what becomes of an object that has lost its managed fields and then has only ours, once those go as well:
// the next apply makes before-first-apply the owner of the rest, or what stays is adopted before anything is added.
func TestOnlyOursIsLeft(t *testing.T) {
	managers, err := fieldManagersOnce()
	if err != nil {
		t.Fatal(err)
	}
	tainted := func(taints ...clusterv1.MachineTaint) declaration {
		var has declaration
		annotate(&has.Top, taints)
		return has
	}
	old := clusterv1.MachineTaint{Key: "x", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationOnInitialization}
	added, other := old, old
	added.Key, other.Effect = "gpu", corev1.TaintEffectNoExecute
	mine := declaration{Object: inherit.Object{Top: inherit.Content{Annotations: map[string]string{"m": "1"}}}}
	timed := mine
	timed.Top.Fields.Seconds[inherit.NodeDeletionTimeout] = new(int32(60))
	orphan := func(has declaration) declaration { has.Orphan = true; return has }
	for name, steps := range map[string][]step{
		"before-first-apply": {
			{does: forces, by: "kubectl", has: timed}, {does: declares, has: mine}, {does: forgets, looped: true}, {does: declares, has: tainted(old)},
		},
		"adopted": {
			{does: replaces, by: "kubectl", has: tainted(other)}, {does: declares, has: orphan(tainted(old)), looped: true},
			{does: forgets, looped: true}, {does: declares, has: orphan(tainted(added, other))},
		},
		"adopted in admission": {
			{does: replaces, by: "kubectl", has: tainted(other)}, {does: declares, has: orphan(tainted(old)), looped: true},
			{does: forgets, looped: true}, {does: declares, has: orphan(tainted(added, other)), admitted: true},
		},
	} {
		for i := range steps {
			steps[i].version = "v1beta2"
		}
		if err := tell(managers, story{kind: "Machine", steps: steps}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
