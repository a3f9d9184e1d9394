// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// entriesAt describes an entry as the object that declares it has it: one further down may have drifted.
func entriesAt(d inherit.Declaration, one inherited) []Entry {
	switch one.What {
	case labelWord:
		if value, ok := d.Labels[one.Name]; ok {
			one.value = value
		}
	case annotationWord:
		content := d.Content
		if one.Own && d.Metadata != nil {
			content = *d.Metadata
		}
		value, ok := content.Annotations[one.Name]
		if !ok && d.Annotates {
			return taintsFor(d, one.Name)
		}
		if ok {
			one.value = value
		}
	case taintWord:
		for _, t := range d.Taints {
			if inherit.TaintEntry(taint.MachineID(t)).Name == one.Name {
				one.value = t
			}
		}
	default:
		one.value = fieldAt(d, one)
	}
	return []Entry{entryOf(one)}
}

// taintsFor are the taints of a topology that a MachinePool inherits as this annotation.
func taintsFor(d inherit.Declaration, annotation string) []Entry {
	var all []Entry
	for _, t := range d.Taints {
		if _, here := taint.ToAnnotations([]clusterv1.MachineTaint{t})[annotation]; here {
			all = append(all, entryOf(inherited{inherit.TaintEntry(taint.MachineID(t)), t}))
		}
	}
	return all
}

// fieldAt is the value of a field or of a readiness gate.
func fieldAt(d inherit.Declaration, one inherited) any {
	field := inherit.FieldOf(one.Name)
	if field != inherit.ReadinessGates && d.Fields.Seconds[field] != nil {
		return d.Paths.Value(field, *d.Fields.Seconds[field])
	}
	for _, gate := range d.Fields.ReadinessGates {
		if field == inherit.ReadinessGates && gate.ConditionType == one.Name {
			return gate
		}
	}
	return one.value
}

// entryOf describes an entry.
func entryOf(one inherited) Entry {
	e := Entry{Kind: one.What, Key: one.Name}
	switch value := one.value.(type) {
	case clusterv1.MachineTaint:
		e.Value, e.Propagation = value.Value, string(value.Propagation)
	case clusterv1.MachineReadinessGate:
		e.Value = string(value.Polarity)
	case string:
		e.Value = value
		if parsed, err := taint.Parse(value); err == nil && one.What == taintWord {
			e.Value = parsed.Value
		}
	default:
		e.Value = fmt.Sprint(value)
	}
	return e
}

// String returns the entry as people write it.
func (e Entry) String() string {
	text := e.Kind + " " + e.Key
	id, effect, isTaint := strings.Cut(e.Key, ":")
	switch {
	case e.Kind == taintWord && isTaint && e.Value != "":
		text = fmt.Sprintf("%s %s=%s:%s", e.Kind, id, cli.Shorten(e.Value), effect)
	case e.Kind != taintWord && e.Value != "":
		text += "=" + cli.Shorten(e.Value)
	}
	if e.Propagation == string(clusterv1.MachineTaintPropagationOnInitialization) {
		text += " (once)"
	}
	return text
}
