// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"
	"slices"
	"strconv"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Entries returns all that the content has, sorted by sort and name. Taints count however they are declared.
func (c Content) Entries() []Entry {
	var all []Entry
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		all = append(all, Entry{What: labelKey, Name: key})
	}
	for _, key := range slices.Sorted(maps.Keys(c.Annotations)) {
		all = append(all, Entry{What: annotationKey, Name: key})
	}
	annotated, _ := taint.FromAnnotations(c.Annotations) // what cannot be read is an annotation
	for _, t := range taint.Merge(c.Taints, annotated) {
		all = append(all, TaintEntry(taint.MachineID(t)))
	}
	for f, seconds := range c.Fields.Seconds {
		if seconds != nil {
			all = append(all, Entry{What: fieldKey, Name: Field(f).Name()})
		}
	}
	for _, gate := range c.Fields.ReadinessGates {
		all = append(all, Entry{What: fieldKey, Name: gate.ConditionType})
	}
	return all
}

// Value returns the value of an entry, and whether the content has it. A typed taint wins over an annotated one. The propagation of
// a taint is not part of the value.
func (c Content) Value(e Entry) (string, bool) {
	switch e.What {
	case labelKey:
		value, ok := c.Labels[e.Name]
		return value, ok
	case annotationKey:
		value, ok := c.Annotations[e.Name]
		return value, ok
	case taintKey:
		annotated, _ := taint.FromAnnotations(c.Annotations)
		t, ok := findTaint(taint.Merge(c.Taints, annotated), e.Name)
		return t.Value, ok
	}
	return c.Fields.value(e.Name)
}

// TaintAnnotation returns the annotation by which the content has the taint "<key>:<effect>", or "" if it is typed or missing.
func (c Content) TaintAnnotation(id string) string {
	if c.TypedTaint(id) {
		return ""
	}
	return Declaration{Content: c}.annotates(id)
}

func findTaint(taints []clusterv1.MachineTaint, id string) (clusterv1.MachineTaint, bool) {
	i := slices.IndexFunc(taints, func(t clusterv1.MachineTaint) bool { return taint.MachineID(t).String() == id })
	if i < 0 {
		return clusterv1.MachineTaint{}, false
	}
	return taints[i], true
}

// value returns the value of a field, or the polarity of a readiness gate of that type.
func (f Fields) value(name string) (string, bool) {
	if field := FieldOf(name); field != ReadinessGates {
		if seconds := f.Seconds[field]; seconds != nil {
			return strconv.Itoa(int(*seconds)), true
		}
		return "", false
	}
	i := slices.IndexFunc(f.ReadinessGates, func(gate clusterv1.MachineReadinessGate) bool { return gate.ConditionType == name })
	if i < 0 {
		return "", false
	}
	return string(f.ReadinessGates[i].Polarity), true
}

// declares reports whether the content has an entry as such: a taint counts only if it is typed.
func (c Content) declares(e Entry) bool {
	if e.What == taintKey {
		return c.TypedTaint(e.Name)
	}
	_, ok := c.Value(e)
	return ok
}

// HasRoom reports whether an object whose content is at these paths has a field for an entry.
func HasRoom(at Paths, e Entry) bool {
	switch e.What {
	case taintKey:
		return at.Taints != nil
	case fieldKey:
		return at.Fields[FieldOf(e.Name)] != nil
	}
	return at.Metadata != nil
}
