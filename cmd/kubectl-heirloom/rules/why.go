// SPDX-License-Identifier: Apache-2.0

// Package rules asks the inheritance rules what the commands explain: which entries an object declares, and why an entry is not inherited.
package rules

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Why an object that is not under a rule now does not get an entry, beside the reasons of the rules.
const (
	Paused        inherit.Why = "Paused"
	OptedOut      inherit.Why = "OptedOut"
	Deleting      inherit.Why = "Deleting"
	WatchFilter   inherit.Why = "WatchFilter"
	OwnerNotFound inherit.Why = "OwnerNotFound"
	NoMatch       inherit.Why = "NoMatch"
)

// WhySkipped returns the reason for which an object is skipped in one word.
func WhySkipped(reason inherit.Reason) inherit.Why {
	switch reason {
	case inherit.IsPaused, inherit.ClusterIsPaused:
		return Paused
	case inherit.IsDeleted:
		return Deleting
	case inherit.IsNoMachine, inherit.NotOfManagementCluster, inherit.NotOfMachine:
		return NoMatch
	case inherit.OwnerIsNotFound, inherit.ClusterDoesNotExist:
		return OwnerNotFound
	}
	switch {
	case reason.OptedOut():
		return OptedOut
	case strings.HasPrefix(string(reason), inherit.NotFiltered):
		return WatchFilter
	}
	return inherit.DropElsewhere
}

// WhyNot says why no rule brings an entry to an object; the word is empty if one does.
func WhyNot(decided inherit.Decision, e inherit.Entry) inherit.Why {
	content := decided.Desired.Top
	if !e.Own {
		content = ptr.Deref(decided.Desired.Template, inherit.Content{})
	}
	inherited, why := inherits(content, e), dropped(decided.Dropped, e)
	switch {
	case inherited && e.What == "taint": // another declaration of it may be left out
		return ""
	case !inherited && why == "":
		return inherit.DropElsewhere
	}
	return why
}

// WhyNotOnNode says why a Node does not get an entry that its source may declare: because a write of it dropped this. The word is empty if
// the Node gets it.
func WhyNotOnNode(from inherit.NodeSource, drops inherit.Drops, e inherit.Entry) inherit.Why {
	e.Own = true
	declares := inherits(from.Declares(), e)
	why := dropped(drops, e)
	switch {
	case !declares && why == "":
		return inherit.DropElsewhere
	case declares && e.What == "taint" && (why == inherit.DropInvalid || why == inherit.DropReserved): // another declaration of it is left out
		return ""
	}
	return why
}

func inherits(content inherit.Content, e inherit.Entry) bool {
	_, ok := content.Value(e)
	return ok && (e.What != "taint" || content.TypedTaint(e.Name))
}

func dropped(drops inherit.Drops, e inherit.Entry) inherit.Why {
	i := slices.IndexFunc(drops, func(d inherit.Dropped) bool { return d.Entry == e && d.Why != "" })
	if i < 0 {
		return ""
	}
	return drops[i].Why
}

// Entries returns all that the content has, sorted by sort and name. Taints count however they are declared.
func Entries(c inherit.Content) []inherit.Entry {
	var all []inherit.Entry
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		all = append(all, inherit.Entry{What: "label", Name: key})
	}
	for _, key := range slices.Sorted(maps.Keys(c.Annotations)) {
		all = append(all, inherit.Entry{What: "annotation", Name: key})
	}
	annotated, _ := taint.FromAnnotations(c.Annotations) // what cannot be read is no taint
	for _, t := range taint.Merge(c.Taints, annotated) {
		all = append(all, inherit.TaintEntry(taint.MachineID(t)))
	}
	for f, seconds := range c.Fields.Seconds {
		if seconds != nil {
			all = append(all, inherit.Entry{What: "field", Name: inherit.Field(f).Name()})
		}
	}
	for _, gate := range c.Fields.ReadinessGates {
		all = append(all, inherit.Entry{What: "field", Name: gate.ConditionType})
	}
	return all
}

// Same reports whether both name the same object.
func Same(a, b inherit.Ref) bool {
	return a.String() == b.String()
}
