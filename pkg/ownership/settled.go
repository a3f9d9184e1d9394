// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// An object is settled if a plan would leave it as it is. That is found out without reading managed fields: its own entry is one that
// was read before, and the entries of others do not matter to an object that has all it should.

// holds reports whether our own entry has what it would have again: each of its fields belongs to an entry that is desired, of which
// it has all fields. At least one must have come from an owner. Otherwise the object may be a copy, which is adopted.
func (p *Prepared) holds(entry metav1.ManagedFieldsEntry) bool {
	if entry.FieldsV1 == nil {
		return false
	}
	fields := entry.FieldsV1.GetRawString()
	if known, ok := p.settled.Get(fields); ok {
		return known == true
	}
	held := p.again(entry)
	if len(fields) <= longestRemembered {
		p.settled.Add(strings.Clone(fields), held) // the original keeps the whole request
	}
	return held
}

func (p *Prepared) again(managed metav1.ManagedFieldsEntry) bool {
	ours, err := fieldsOf(managed)
	if err != nil {
		return false
	}
	var paths []fieldpath.Path
	owner := false
	for _, at := range p.places {
		for _, e := range at.desired {
			if ours.Has(e.path) {
				paths, owner = pathsOf(paths, e), owner || at.called(e).FromOwner()
			}
		}
	}
	return owner && setOf(paths).Equals(ours)
}

// carried reports whether an object has all that is desired, in these values.
func (p *Prepared) carried(current inherit.Content) bool {
	desired, at := p.desired.Top, p.layout.Top
	return (at.Metadata == nil || contains(current.Labels, desired.Labels) && contains(current.Annotations, desired.Annotations)) &&
		(at.Taints == nil || sameTaints(current.Taints, desired.Taints)) && sameFields(at, current.Fields, desired.Fields)
}

func contains(all, some map[string]string) bool {
	for key, value := range some {
		if has, ok := all[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// sameTaints reports whether each of some is there, once or several times, and nowhere with another value.
func sameTaints(all, some []clusterv1.MachineTaint) bool {
	for _, want := range some {
		id := taint.MachineID(want)
		same := func(t clusterv1.MachineTaint) bool { return taint.MachineID(t) == id }
		if !slices.Contains(all, want) || slices.ContainsFunc(all, func(t clusterv1.MachineTaint) bool { return same(t) && t != want }) {
			return false
		}
	}
	return true
}

func sameFields(at inherit.Paths, all, some inherit.Fields) bool {
	for f, want := range some.Seconds {
		if has := all.Seconds[f]; at.Fields[f] != nil && want != nil && (has == nil || *has != *want) {
			return false
		}
	}
	return at.Fields[inherit.ReadinessGates] == nil || !slices.ContainsFunc(some.ReadinessGates, func(want clusterv1.MachineReadinessGate) bool {
		same := func(gate clusterv1.MachineReadinessGate) bool { return gate.ConditionType == want.ConditionType }
		first := slices.IndexFunc(all.ReadinessGates, same)
		return first < 0 || all.ReadinessGates[first] != want
	})
}
