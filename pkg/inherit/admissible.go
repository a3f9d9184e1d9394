// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// What Cluster API's CRDs accept in lists.
const (
	mostTaints = 64
	mostGates  = 32
)

// mostBytes is the most that all annotations of an object may take, keys and values together. API servers have no such limit for
// labels. But etcd limits an object to 1.5 MiB, and managed fields repeat each of our keys. So labels have the same limit here.
const mostBytes = apivalidation.TotalAnnotationSizeLimitB

// Admissible returns as much of desired as API servers accept in a child that has current, and a Problem for everything else.
// One entry that they do not accept would stop every write of the child, so it is left out as if it were not declared.
//
// before returns the child without what this write injects. stays reports which of those entries remain whatever the child inherits:
// all that are not Heirloom's alone; nil means all. They have the first claim to the room. Both are called only if room is short.
// What the child inherited before does not decide about the rest: taint annotations come first, and then what takes the least room.
func Admissible(current, desired Object, before func() Object, stays func(Entry) bool) (Object, error) {
	parts := []*admission{{current: current.Top, desired: &desired.Top, paths: current.Layout.Top, own: true, stays: stays}}
	if current.Template != nil && desired.Template != nil {
		copied := *desired.Template
		desired.Template = &copied
		parts = append(parts, &admission{current: *current.Template, desired: &copied, paths: current.Layout.Template, stays: stays})
	}
	var problems []error
	for _, part := range parts {
		part.entries()
		if !part.fits() {
			had := before()
			if part.own {
				part.crowded(had.Top)
			} else {
				part.crowded(ptr.Deref(had.Template, Content{}))
			}
		}
		problems = append(problems, part.problems...)
	}
	return desired, errors.Join(problems...)
}

// admission is the part of a child that is judged: its top, or its Machine template.
type admission struct {
	current  Content
	desired  *Content
	paths    Paths
	own      bool
	stays    func(Entry) bool
	problems []error
}

func (a *admission) entry(what, name string) Entry {
	return Entry{What: what, Name: name, Own: a.own}
}

// entries leaves out what is not valid by itself. What the child has already has been accepted.
func (a *admission) entries() {
	a.desired.Labels = a.valid(labelKey, a.desired.Labels, a.current.Labels)
	a.desired.Annotations = a.valid(annotationKey, a.desired.Annotations, a.current.Annotations)
	fields := &a.desired.Fields
	for f, seconds := range fields.Seconds {
		fields.Seconds[f] = a.notNegative(a.paths.Fields[f], seconds)
	}
	if a.paths.Fields[ReadinessGates] != nil {
		fields.ReadinessGates = a.validGates(fields.ReadinessGates)
	}
}

func (a *admission) leaveOut(what, name, value, reason string) {
	a.problems = append(a.problems, &Problem{Entry: a.entry(what, name), Value: value, Reason: reason})
}

// valid returns desired, or a copy without what is wrong in it.
func (a *admission) valid(what string, desired, current map[string]string) map[string]string {
	if a.paths.Metadata == nil {
		return desired
	}
	wrong := invalid(what, desired, func(key string) bool {
		now, had := current[key]
		return !had || now != desired[key]
	})
	if len(wrong) == 0 {
		return desired
	}
	valid := maps.Clone(desired)
	for _, key := range wrong {
		value := ""
		if what == labelKey {
			value = desired[key]
		}
		a.leaveOut(what, key, value, "an API server would refuse it: "+strings.Join(refused(what, key, desired[key]), "; "))
		delete(valid, key)
	}
	return valid
}

func (a *admission) notNegative(path []string, n *int32) *int32 {
	if path == nil || n == nil || *n >= 0 {
		return n
	}
	a.leaveOut(fieldKey, path[len(path)-1], "", fmt.Sprintf("an API server would refuse %d: it must not be negative", *n))
	return nil
}

// conditionType is what Cluster API's CRDs accept as the type of a readiness gate's condition, of 316 characters at most.
func conditionType() (pattern *regexp.Regexp, longest int) {
	return regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`), 316
}

// validGates returns the readiness gates that are valid, each type once: the first counts.
func (a *admission) validGates(gates []clusterv1.MachineReadinessGate) []clusterv1.MachineReadinessGate {
	if slices.Equal(gates, a.current.Fields.ReadinessGates) {
		return gates
	}
	pattern, longest := conditionType()
	seen := sets.New[string]()
	var valid []clusterv1.MachineReadinessGate
	for _, gate := range gates {
		switch {
		case seen.Has(gate.ConditionType):
		case len(gate.ConditionType) > longest || !pattern.MatchString(gate.ConditionType):
			a.leaveOut(fieldKey, gate.ConditionType, "", "an API server would refuse this readiness gate: its condition type is not valid")
		case !slices.Contains([]clusterv1.ConditionPolarity{"", clusterv1.PositivePolarityCondition, clusterv1.NegativePolarityCondition}, gate.Polarity):
			a.leaveOut(fieldKey, gate.ConditionType, "", "an API server would refuse this readiness gate: its polarity is neither Positive nor Negative")
		default:
			seen.Insert(gate.ConditionType)
			valid = append(valid, gate)
		}
	}
	return valid
}

// Fits reports whether there is surely room in an object for all that is desired at its top.
func Fits(current, desired Object) bool {
	return (&admission{current: current.Top, desired: &desired.Top}).fits()
}

// fits reports whether there is surely room for everything: it takes all that the child has to stay, and to be something else.
func (a *admission) fits() bool {
	return size(a.desired.Labels) <= mostBytes && size(a.current.Annotations)+size(a.desired.Annotations) <= mostBytes &&
		len(a.current.Taints)+len(a.desired.Taints) <= mostTaints &&
		len(a.current.Fields.ReadinessGates)+len(a.desired.Fields.ReadinessGates) <= mostGates
}

// crowded leaves out what has no room beside the entries of before that stay.
func (a *admission) crowded(before Content) {
	if a.paths.Metadata != nil {
		a.desired.Labels = a.room(labelKey, a.desired.Labels, nil,
			"there is no room for it: of labels no more than 256 KiB are inherited")
		a.desired.Annotations = a.room(annotationKey, a.desired.Annotations, before.Annotations,
			"there is no room for it: an API server accepts no more than 256 KiB of annotations")
	}
	if a.paths.Taints != nil {
		a.desired.Taints = first(a, taintKey, "taints", mostTaints, before.Taints, a.byRank(), func(t clusterv1.MachineTaint) string {
			return taint.MachineID(t).String()
		})
	}
	if a.paths.Fields[ReadinessGates] != nil {
		a.desired.Fields.ReadinessGates = first(a, fieldKey, "readiness gates", mostGates,
			before.Fields.ReadinessGates, a.desired.Fields.ReadinessGates, func(gate clusterv1.MachineReadinessGate) string { return gate.ConditionType })
	}
}

// room returns as much of desired as there is room for beside what stays of before.
func (a *admission) room(what string, desired, before map[string]string, reason string) map[string]string {
	stays := filter(before, func(key string) bool { return a.stays == nil || a.stays(a.entry(what, key)) })
	total := size(stays)
	more := func(key string) int {
		if before, there := stays[key]; there {
			return len(desired[key]) - len(before)
		}
		return len(key) + len(desired[key])
	}
	admitted := make(map[string]string, len(desired))
	for _, key := range slices.SortedFunc(maps.Keys(desired), func(x, y string) int {
		return cmp.Or(last(!declaresTaints(x), !declaresTaints(y)), cmp.Compare(more(x), more(y)), cmp.Compare(x, y))
	}) {
		if total+more(key) > mostBytes {
			a.leaveOut(what, key, "", reason)
			continue
		}
		total += more(key)
		admitted[key] = desired[key]
	}
	return admitted
}

// last sorts false before true.
func last(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	}
	return -1
}

// AnnotatesTaints reports whether annotations declare taints.
func AnnotatesTaints(annotations map[string]string) bool {
	return has(annotations, taint.AlwaysAnnotation) || has(annotations, taint.InitializeAnnotation)
}

func declaresTaints(annotation string) bool {
	return annotation == taint.AlwaysAnnotation || annotation == taint.InitializeAnnotation
}

// byRank returns the desired taints in the order of their claim to room: typed ones before annotated ones, and those that a Node
// keeps before those that it gets once.
func (a *admission) byRank() []clusterv1.MachineTaint {
	return slices.SortedStableFunc(slices.Values(taint.Merge(a.desired.Taints, nil)), func(x, y clusterv1.MachineTaint) int {
		return cmp.Or(cmp.Compare(a.claim(x), a.claim(y)), last(!taint.Always(x), !taint.Always(y)))
	})
}

func (a *admission) claim(t clusterv1.MachineTaint) Claim {
	return a.desired.Claims[taint.MachineID(t).String()]
}

// first returns the first items of a list, as many as there is room for beside what stays of before.
func first[T any](a *admission, what, many string, most int, before, desired []T, name func(T) string) []T {
	there := sets.New[string]()
	for _, item := range before {
		if a.stays == nil || a.stays(a.entry(what, name(item))) {
			there.Insert(name(item))
		}
	}
	return slices.DeleteFunc(slices.Clone(desired), func(item T) bool {
		if there.Has(name(item)) || there.Len() < most {
			there.Insert(name(item))
			return false
		}
		a.leaveOut(what, name(item), "", fmt.Sprintf("there is no room for it: an API server accepts no more than %d %s", most, many))
		return true
	})
}

// size is how many bytes a map's keys and values have.
func size(m map[string]string) int {
	total := 0
	for key, value := range m {
		total += len(key) + len(value)
	}
	return total
}
