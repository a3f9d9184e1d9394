// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// story is what happens to one object: who writes it, and what its owner declares meanwhile.
type story struct {
	kind  string
	steps []step
}

// What a step does.
const (
	replaces = "replaces" // an update that leaves nothing else
	merges   = "merges"   // an update that adds and changes
	removes  = "removes"  // an update that takes these keys away
	applies  = "applies"  // a server-side apply that is not forced
	forces   = "forces"   // one that is
	restores = "restores" // a create of what there was, without its managed fields
	forgets  = "forgets"  // the managed fields are gone
	declares = "declares" // the owner declares something else
)

type step struct {
	does, by string
	// has is what is written or declared.
	has declaration
	// admitted says that the webhook answers; looped, that the loop runs afterwards.
	admitted, looped bool
}

// declaration is content, and what else is decided where it is what an object should inherit.
type declaration struct {
	inherit.Object
	Orphan, TaintsRefused bool
}

func (d declaration) decision() inherit.Decision {
	decided := fromOwner(d.Object)
	if d.Orphan {
		decided.Outcome = inherit.NoOwner
	}
	decided.TaintsRefused = d.TaintsRefused
	return decided
}

// dice makes stories up.
type dice struct{ *rand.Rand }

func (d dice) story() story {
	s := story{kind: one(d, "Machine", "MachineSet", "MachineDeployment")}
	for i := range 2 + d.IntN(6) {
		next := step{
			does:     one(d, replaces, merges, merges, removes, applies, forces, declares, declares, declares),
			by:       one(d, "kubectl", "capi-machineset", "argo"),
			admitted: d.once(2), looped: d.once(2),
		}
		switch {
		case i == 0:
			next.does = one(d, replaces, replaces, forces, declares)
		case d.once(15):
			next.does = one(d, restores, forgets)
		}
		next.has.Object = d.object(s.kind)
		if next.does == declares {
			next.has = d.declared(s.kind)
		}
		s.steps = append(s.steps, next)
	}
	return s
}

func one[T any](d dice, all ...T) T { return all[d.IntN(len(all))] }

func (d dice) once(in int) bool { return d.IntN(in) == 0 }

// object is content as somebody writes it.
func (d dice) object(kind string) inherit.Object {
	whole := d.content()
	if kind == "Machine" {
		return inherit.Object{Top: whole}
	}
	own := d.content()
	return inherit.Object{Top: inherit.Content{Labels: own.Labels, Annotations: own.Annotations}, Template: &whole}
}

// declared is what the rules let an object inherit.
func (d dice) declared(kind string) declaration {
	object := declaration{Object: d.object(kind)}
	if kind == "Machine" {
		object.Orphan, object.TaintsRefused = d.once(6), d.once(6)
		if object.Orphan {
			object.Top = inherit.Content{}
		}
		if object.TaintsRefused {
			object.Top.Taints = nil
			return object
		}
		annotate(&object.Top, d.taints())
		return object
	}
	told := d.pairs(inherit.CapacityAnnotations...)
	if d.once(6) {
		return declaration{Orphan: true, Object: inherit.Object{Top: inherit.Content{}.WithYielding(told)}}
	}
	object.Top = object.Top.WithYielding(told)
	return object
}

func (d dice) content() inherit.Content {
	content := inherit.Content{
		Labels: d.pairs("a", "b", "c"), Annotations: d.pairs("m", "n", inherit.CapacityLabelsAnnotation), Taints: d.taints(),
	}
	for f := range content.Fields.Seconds {
		content.Fields.Seconds[f] = d.seconds()
	}
	content.Fields.ReadinessGates = d.gates()
	return content
}

func (d dice) pairs(keys ...string) map[string]string {
	var m map[string]string
	for _, key := range keys {
		if d.once(3) {
			if m == nil {
				m = map[string]string{}
			}
			m[key] = one(d, "1", "2")
		}
	}
	return m
}

func (d dice) taints() []clusterv1.MachineTaint {
	var taints []clusterv1.MachineTaint
	for _, key := range []string{"gpu", "x"} {
		for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
			if d.once(4) {
				taints = append(taints, clusterv1.MachineTaint{Key: key, Value: one(d, "", "1", "2"), Effect: effect, Propagation: one(d,
					clusterv1.MachineTaintPropagationAlways, clusterv1.MachineTaintPropagationOnInitialization)})
			}
		}
	}
	d.Shuffle(len(taints), func(i, j int) { taints[i], taints[j] = taints[j], taints[i] })
	return taints
}

func (d dice) seconds() *int32 {
	return one(d, nil, nil, nil, nil, new(int32(0)), new(int32(60)), new(int32(90)))
}

func (d dice) gates() []clusterv1.MachineReadinessGate {
	var gates []clusterv1.MachineReadinessGate
	for _, condition := range []string{"Warm", "Cool"} {
		if d.once(4) {
			gates = append(gates, clusterv1.MachineReadinessGate{ConditionType: condition, Polarity: one(d, "", clusterv1.NegativePolarityCondition)})
		}
	}
	d.Shuffle(len(gates), func(i, j int) { gates[i], gates[j] = gates[j], gates[i] })
	return gates
}

// after is what is in an object once somebody has written it.
func (s step) after(current inherit.Content, has inherit.Content) inherit.Content {
	if s.does == replaces {
		return has
	}
	after := inherit.Content{
		Labels: s.pairs(current.Labels, has.Labels), Annotations: s.pairs(current.Annotations, has.Annotations),
		Taints: list(s, current.Taints, has.Taints, func(t clusterv1.MachineTaint) any { return taint.MachineID(t) }),
		Fields: inherit.Fields{
			ReadinessGates: list(s, current.Fields.ReadinessGates, has.Fields.ReadinessGates, func(gate clusterv1.MachineReadinessGate) any { return gate.ConditionType }),
		},
	}
	for f := range after.Fields.Seconds {
		after.Fields.Seconds[f] = s.seconds(current.Fields.Seconds[f], has.Fields.Seconds[f])
	}
	return after
}

func (s step) pairs(current, has map[string]string) map[string]string {
	result := map[string]string{}
	maps.Copy(result, current)
	for key, value := range has {
		if result[key] = value; s.does == removes {
			delete(result, key)
		}
	}
	return result
}

func list[T any](s step, current, has []T, key func(T) any) []T {
	others := slices.DeleteFunc(slices.Clone(current), func(t T) bool {
		return slices.ContainsFunc(has, func(other T) bool { return key(other) == key(t) })
	})
	if s.does == removes {
		return others
	}
	return append(slices.Clone(has), others...)
}

func (s step) seconds(current, has *int32) *int32 {
	switch {
	case has == nil:
		return current
	case s.does == removes:
		return nil
	default:
		return has
	}
}

// String tells a story so that it can be read.
func (s story) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "a %s", s.kind)
	for _, step := range s.steps {
		raw, err := json.Marshal(step.has)
		var has map[string]any
		if err == nil && json.Unmarshal(raw, &has) == nil {
			delete(has, "Layout")
			raw, _ = json.Marshal(withoutEmpty(has))
		}
		fmt.Fprintf(&text, "\n  %s %s (admitted: %v, looped: %v): %s", step.by, step.does, step.admitted, step.looped, raw)
	}
	return text.String()
}

// withoutEmpty is an object as JSON has it, without what is not declared.
func withoutEmpty(m map[string]any) map[string]any {
	maps.DeleteFunc(m, func(name string, value any) bool {
		switch value := value.(type) {
		case map[string]any:
			return len(withoutEmpty(value)) == 0 && name != "Template"
		case []any:
			return !slices.ContainsFunc(value, func(element any) bool { return element != nil })
		}
		return value == nil || value == false || value == ""
	})
	return m
}

// shrunk returns a story that fails as well and of which no step can be left out.
func (s story) shrunk(fails func(story) bool) story {
	for i := 0; i < len(s.steps); i++ {
		if less := (story{s.kind, slices.Delete(slices.Clone(s.steps), i, i+1)}); fails(less) {
			s, i = less, -1
		}
	}
	return s
}

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
		if err := tell(managers, story{kind: "Machine", steps: steps}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
