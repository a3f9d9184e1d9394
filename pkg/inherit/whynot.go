// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// WhyNot says why no rule propagates an entry to the object; it is empty if a rule does.
func (d Decision) WhyNot(e Entry) Why {
	content := d.Desired.Top
	if !e.Own {
		content = ptr.Deref(d.Desired.Template, Content{})
	}
	inherited, why := content.hasTyped(e), d.Dropped.why(e)
	switch {
	case inherited && e.What == taintKey: // another declaration of the taint may be left out
		return ""
	case !inherited && why == "":
		return DropElsewhere
	}
	return why
}

// WhyNot says why a Node does not get an entry that its source may declare; it is empty if the Node gets the entry. dropped are the entries
// that a write of the Node left out.
func (s NodeSource) WhyNot(dropped Drops, e Entry) Why {
	e.Own = true
	declares, why := s.Declares().hasTyped(e), dropped.why(e)
	switch {
	case !declares && why == "":
		return DropElsewhere
	case declares && e.What == taintKey && (why == DropInvalid || why == DropReserved): // another declaration of the taint is left out
		return ""
	}
	return why
}

// hasTyped reports whether the content has an entry; a taint counts only if it is typed.
func (c Content) hasTyped(e Entry) bool {
	_, ok := c.Value(e)
	return ok && (e.What != taintKey || c.TypedTaint(e.Name))
}

func (d Drops) why(e Entry) Why {
	i := slices.IndexFunc(d, func(one Dropped) bool { return one.Entry == e && one.Why != "" })
	if i < 0 {
		return ""
	}
	return d[i].Why
}

// Entries returns all entries of the content: labels, annotations, taints and fields. Both typed and annotated taints count.
func (c Content) Entries() []Entry {
	var all []Entry
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		all = append(all, Entry{What: labelKey, Name: key})
	}
	for _, key := range slices.Sorted(maps.Keys(c.Annotations)) {
		all = append(all, Entry{What: annotationKey, Name: key})
	}
	annotated, _ := taint.FromAnnotations(c.Annotations) // invalid entries are no taints
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
