// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"cmp"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Limits of an API server for an object. It does not limit labels, but etcd limits an object to 1.5 MiB, and managed fields repeat each of
// our keys, so labels have the limit of annotations.
const (
	mostBytes  = apivalidation.TotalAnnotationSizeLimitB
	mostTaints = 64
	mostGates  = 32
)

// Fit returns the desired entries for which a child with content current has room, and an error for users about the others. They are left
// out as if they were not declared: otherwise an API server would refuse every write of the child.
//
// before returns the child without the entries that this write injects. stays reports which entries of this content remain, independent of
// the entries that the child inherits; nil means all. They have the first claim to the room, then taint annotations, and then the smallest
// entries. Fit calls both functions only if room is short.
func Fit(current, desired Object, before func() Object, stays func(Entry) bool) (Object, error) {
	var out Drops
	top, template := current.top(&out), current.template(&out)
	if short(current.Top, desired.Top) {
		desired.Top = top.fit(desired.Top, before().Top, stays)
	}
	if current.Template != nil && desired.Template != nil && short(*current.Template, *desired.Template) {
		fitting := template.fit(*desired.Template, ptr.Deref(before().Template, Content{}), stays)
		desired.Template = &fitting
	}
	return desired, out.Problems()
}

// short reports whether room may be short if all current entries stay in addition to the desired entries.
func short(current, desired Content) bool {
	return size(desired.Labels) > mostBytes || size(current.Annotations)+size(desired.Annotations) > mostBytes ||
		len(current.Taints)+len(desired.Taints) > mostTaints ||
		len(current.Fields.ReadinessGates)+len(desired.Fields.ReadinessGates) > mostGates
}

// size returns the number of bytes of the keys and values of a map.
func size(m map[string]string) int {
	total := 0
	for key, value := range m {
		total += len(key) + len(value)
	}
	return total
}

// claimant is an entry that takes room: bytes of a map, or an item of a list.
type claimant struct {
	name string
	size int
}

// crowd returns the names of wanted entries that have no room with the entries of before that stay, and adds them to the drops. The first
// entries of wanted have the first claim.
func (p place) crowd(what string, most int, limit string, wanted, before []claimant, stays func(Entry) bool) sets.Set[string] {
	there, taken, left := map[string]int{}, 0, sets.New[string]()
	for _, c := range before {
		if stays == nil || stays(Entry{What: what, Name: c.name, Own: p.own}) {
			there[c.name] = c.size
			taken += c.size
		}
	}
	for _, c := range wanted { // an entry that becomes smaller frees room for all entries, also for earlier entries
		if saved := there[c.name] - c.size; saved > 0 {
			there[c.name] = c.size
			taken -= saved
		}
	}
	for _, c := range wanted {
		more := c.size - there[c.name]
		if more > 0 && taken+more > most {
			left.Insert(c.name)
			p.drop(what, c.name, DropInvalid, "", "there is no room for it: "+limit)
			continue
		}
		taken += more
	}
	return left
}

// fit leaves out desired entries that have no room with the entries of before that stay.
func (p place) fit(desired, before Content, stays func(Entry) bool) Content {
	if p.at.Metadata != nil {
		left := p.crowd(labelKey, mostBytes, "objects inherit no more than 256 KiB of labels", bytesOf(desired.Labels), nil, stays)
		desired.Labels = filter(desired.Labels, func(key string) bool { return !left.Has(key) })
		left = p.crowd(annotationKey, mostBytes, "an API server accepts no more than 256 KiB of annotations",
			bytesOf(desired.Annotations), bytesOf(before.Annotations), stays)
		desired.Annotations = filter(desired.Annotations, func(key string) bool { return !left.Has(key) })
	}
	if p.at.Taints != nil {
		name := func(t clusterv1.MachineTaint) string { return taint.MachineID(t).String() }
		ranked := slices.SortedStableFunc(slices.Values(taint.Merge(desired.Taints, nil)), func(x, y clusterv1.MachineTaint) int {
			return cmp.Or(cmp.Compare(desired.Claims[name(x)], desired.Claims[name(y)]), last(!taint.Always(x), !taint.Always(y))) // typed first
		})
		left := p.crowd(taintKey, mostTaints, "an API server accepts no more than 64 taints",
			oneEach(ranked, name), oneEach(before.Taints, name), stays)
		desired.Taints = slices.DeleteFunc(ranked, func(t clusterv1.MachineTaint) bool { return left.Has(name(t)) })
	}
	if p.at.Fields[ReadinessGates] != nil {
		name := func(gate clusterv1.MachineReadinessGate) string { return gate.ConditionType }
		gates := slices.Clone(desired.Fields.ReadinessGates)
		left := p.crowd(fieldKey, mostGates, "an API server accepts no more than 32 readiness gates",
			oneEach(gates, name), oneEach(before.Fields.ReadinessGates, name), stays)
		desired.Fields.ReadinessGates = slices.DeleteFunc(gates, func(gate clusterv1.MachineReadinessGate) bool { return left.Has(name(gate)) })
	}
	return desired
}

// bytesOf returns the entries of a map with their bytes: first the annotations that declare taints, then the smallest entries.
func bytesOf(m map[string]string) []claimant {
	all := make([]claimant, 0, len(m))
	for key, value := range m {
		all = append(all, claimant{key, len(key) + len(value)})
	}
	slices.SortFunc(all, func(x, y claimant) int {
		return cmp.Or(last(!declaresTaints(x.name), !declaresTaints(y.name)), cmp.Compare(x.size, y.size), cmp.Compare(x.name, y.name))
	})
	return all
}

func declaresTaints(annotation string) bool {
	return slices.Contains(taint.Annotations, annotation)
}

func oneEach[T any](items []T, name func(T) string) []claimant {
	all := make([]claimant, 0, len(items))
	for _, item := range items {
		all = append(all, claimant{name(item), 1})
	}
	return all
}
