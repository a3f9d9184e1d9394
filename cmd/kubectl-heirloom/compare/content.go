// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// id names an entry within a place. Only taints have an effect, and only readiness gates are gates; the kind is never one of a
// template.
type id struct {
	kind   Kind
	key    string
	effect corev1.TaintEffect
	gate   bool
}

// value is what an entry says. Only taints of Machines have a propagation.
type value struct {
	text, propagation string
}

// content is all that can be inherited at one place.
type content map[id]value

// contentOf returns the content of a place with these paths. A field that the place does not have is left out.
func contentOf(c inherit.Content, paths inherit.Paths) content {
	all := contentOfMaps(c.Labels, c.Annotations)
	for _, t := range c.Taints {
		all[id{kind: Taint, key: t.Key, effect: t.Effect}] = value{t.Value, string(t.Propagation)}
	}
	for f, seconds := range c.Fields.Seconds {
		if path := paths.Fields[f]; seconds != nil && path != nil {
			all[id{kind: Field, key: path[len(path)-1]}] = value{text: fmt.Sprint(paths.Value(inherit.Field(f), *seconds))}
		}
	}
	if paths.Fields[inherit.ReadinessGates] != nil {
		for _, gate := range c.Fields.ReadinessGates {
			all[id{kind: Field, key: gate.ConditionType, gate: true}] = value{text: string(gate.Polarity)}
		}
	}
	return all
}

func contentOfNode(s inherit.NodeState) content {
	all := contentOfMaps(s.Labels, s.Annotations)
	for _, t := range s.Taints {
		all[id{kind: Taint, key: t.Key, effect: t.Effect}] = value{text: t.Value}
	}
	return all
}

func contentOfMaps(labels, annotations map[string]string) content {
	all := content{}
	for key, text := range labels {
		all[id{kind: Label, key: key}] = value{text: text}
	}
	for key, text := range annotations {
		all[id{kind: Annotation, key: key}] = value{text: text}
	}
	return all
}

// name is what the rules call an entry.
func (i id) name() string {
	if i.kind == Taint {
		return taint.ID{Key: i.key, Effect: i.effect}.String()
	}
	return i.key
}

// shown is what people call an entry.
func (i id) shown() string {
	if i.gate {
		return "readinessGates[" + i.key + "]"
	}
	return i.name()
}

// Shown is what people call an entry.
func Shown(e inherit.Entry) string {
	if e.What == string(Taint) {
		return e.Name
	}
	return id{kind: Kind(e.What), key: e.Name, gate: e.What == string(Field) && inherit.FieldOf(e.Name) == inherit.ReadinessGates}.shown()
}
