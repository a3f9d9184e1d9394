// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// story is the history of one object: its writes, and the declarations of its owner.
type story struct {
	kind  string
	steps []step
}

// The actions of a step.
const (
	replaces = "replaces" // an update that leaves nothing else
	merges   = "merges"   // an update that adds and changes
	removes  = "removes"  // an update that removes these keys
	applies  = "applies"  // a server-side apply that is not forced
	forces   = "forces"   // a forced server-side apply
	restores = "restores" // a create of the previous object, without its managed fields
	forgets  = "forgets"  // the managed fields are gone
	declares = "declares" // the owner declares new content
)

type step struct {
	does, by string
	// has is the written or declared content.
	has declaration
	// admitted: the webhook reviews the write; looped: the loop runs afterwards.
	admitted, looped bool
}

// declaration is content, and the rest of the decision if the content is to be inherited.
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

// stories generates stories from few words, so that writers often use the same keys.
var stories = rapid.Custom(func(t *rapid.T) story {
	s := story{kind: oneOf(t, kinds...)}
	for i := range rapid.IntRange(2, 7).Draw(t, "") {
		next := step{
			does:     oneOf(t, replaces, merges, merges, removes, applies, forces, declares, declares, declares),
			by:       oneOf(t, "kubectl", "capi-machineset", "argo"),
			admitted: rapid.Bool().Draw(t, ""), looped: rapid.Bool().Draw(t, ""),
		}
		switch {
		case i == 0:
			next.does = oneOf(t, replaces, replaces, forces, declares)
		case once(t, 8):
			next.does = oneOf(t, restores, forgets)
		}
		if next.does == declares {
			next.has = declaring(t, s.kind)
		} else {
			next.has.Object = written(t, s.kind)
		}
		s.steps = append(s.steps, next)
	}
	return s
})

var kinds = []string{"Machine", "MachineSet", "MachineDeployment"}

func oneOf[T any](t *rapid.T, all ...T) T { return rapid.SampledFrom(all).Draw(t, "") }

func once(t *rapid.T, in int) bool { return rapid.IntRange(1, in).Draw(t, "") == in }

// written generates content as a client writes it.
func written(t *rapid.T, kind string) inherit.Object {
	whole := contents.Draw(t, "")
	if kind == "Machine" {
		return inherit.Object{Top: whole}
	}
	own := inherit.Content{Labels: someLabels.Draw(t, ""), Annotations: someAnnotations.Draw(t, "")}
	return inherit.Object{Top: own, Template: &whole}
}

// declaring generates content that the rules let an object inherit.
func declaring(t *rapid.T, kind string) declaration {
	object := declaration{Object: written(t, kind)}
	if kind == "Machine" {
		object.Orphan, object.TaintsRefused = once(t, 6), once(t, 6)
		if object.Orphan {
			object.Top = inherit.Content{}
		}
		if object.TaintsRefused {
			object.Top.Taints = nil
			return object
		}
		annotate(&object.Top, taints.Draw(t, ""))
		return object
	}
	told := someOf(inherit.CapacityAnnotations...).Draw(t, "")
	if once(t, 6) {
		return declaration{Orphan: true, Object: inherit.Object{Top: inherit.Content{}.WithYielding(told)}}
	}
	object.Top = object.Top.WithYielding(told)
	return object
}

var contents = rapid.Custom(func(t *rapid.T) inherit.Content {
	content := inherit.Content{
		Labels: someLabels.Draw(t, ""), Annotations: someAnnotations.Draw(t, ""), Taints: taints.Draw(t, ""),
	}
	for f := range content.Fields.Seconds {
		content.Fields.Seconds[f] = oneOf(t, nil, nil, nil, nil, new(int32(0)), new(int32(60)), new(int32(90)))
	}
	content.Fields.ReadinessGates = gates.Draw(t, "")
	return content
})

func someOf(keys ...string) *rapid.Generator[map[string]string] {
	return rapid.MapOfN(rapid.SampledFrom(keys), rapid.SampledFrom([]string{"1", "2"}), 0, len(keys)-1)
}

var someLabels, someAnnotations = someOf("a", "b", "c"), someOf("m", "n", inherit.CapacityLabelsAnnotation)

var taints = rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) clusterv1.MachineTaint {
	return clusterv1.MachineTaint{
		Key: oneOf(t, "gpu", "x"), Value: oneOf(t, "", "1", "2"), Effect: oneOf(t, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute),
		Propagation: oneOf(t, clusterv1.MachineTaintPropagationAlways, clusterv1.MachineTaintPropagationOnInitialization),
	}
}), 0, 2, taint.MachineID)

var gates = rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) clusterv1.MachineReadinessGate {
	return clusterv1.MachineReadinessGate{ConditionType: oneOf(t, "Warm", "Cool"), Polarity: oneOf(t, "", clusterv1.NegativePolarityCondition)}
}), 0, 2, func(gate clusterv1.MachineReadinessGate) string { return gate.ConditionType })

// after returns the content of an object after the write.
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

// String describes a story in readable form.
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

// withoutEmpty returns an object in JSON form, without undeclared fields.
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
