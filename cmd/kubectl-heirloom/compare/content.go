// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// value is the value of an entry. Only taints of Machines have a propagation.
type value struct {
	text, propagation string
}

// content holds the inheritable entries at a place of an object.
type content map[inherit.Entry]value

// contentOf returns the content of a place with these paths, at the object's own top or in its template. It drops fields that the place
// does not have.
func contentOf(c inherit.Content, paths inherit.Paths, own bool) content {
	all := contentOfMaps(c.Labels, c.Annotations, own)
	for _, t := range c.Taints {
		all[inherit.TaintEntry(taint.MachineID(t))] = value{t.Value, string(t.Propagation)}
	}
	for f, seconds := range c.Fields.Seconds {
		if path := paths.Fields[f]; seconds != nil && path != nil {
			e := inherit.Entry{What: string(Field), Name: path[len(path)-1], Own: own}
			all[e] = value{text: fmt.Sprint(paths.Value(inherit.Field(f), *seconds))}
		}
	}
	if paths.Fields[inherit.ReadinessGates] != nil {
		for _, gate := range c.Fields.ReadinessGates {
			all[inherit.Entry{What: string(Field), Name: gate.ConditionType, Own: own}] = value{text: string(gate.Polarity)}
		}
	}
	return all
}

func contentOfNode(s inherit.NodeState) content {
	all := contentOfMaps(s.Labels, s.Annotations, true)
	for _, t := range s.Taints {
		all[inherit.TaintEntry(taint.IDOf(t))] = value{text: t.Value}
	}
	return all
}

func contentOfMaps(labels, annotations map[string]string, own bool) content {
	all := content{}
	for key, text := range labels {
		all[inherit.Entry{What: string(Label), Name: key, Own: own}] = value{text: text}
	}
	for key, text := range annotations {
		all[inherit.Entry{What: string(Annotation), Name: key, Own: own}] = value{text: text}
	}
	return all
}

// isGate reports whether an entry is a readiness gate.
func isGate(e inherit.Entry) bool {
	return e.What == string(Field) && inherit.FieldOf(e.Name) == inherit.ReadinessGates
}

// Shown returns the name of an entry for people.
func Shown(e inherit.Entry) string {
	if isGate(e) {
		return "readinessGates[" + e.Name + "]"
	}
	return e.Name
}
