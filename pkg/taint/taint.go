// SPDX-License-Identifier: Apache-2.0

// Package taint parses, formats, merges and validates taints, typed or declared by annotation, and computes the taints of a Node
// (docs/design.md §3). It is pure.
package taint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// AlwaysAnnotation declares taints that are kept on the Node as long as the Machine declares them,
	// in kubectl's syntax: "key=value:Effect,key:Effect".
	AlwaysAnnotation = "taints.heirloom.dev/always"

	// InitializeAnnotation declares taints that a Node gets once, when it registers.
	InitializeAnnotation = "taints.heirloom.dev/initialize"
)

// ID identifies a taint: an object holds at most one taint per key and effect.
type ID struct {
	Key    string
	Effect corev1.TaintEffect
}

// String returns the form that Cluster API uses in its tracking annotation, "<key>:<effect>".
func (id ID) String() string { return id.Key + ":" + string(id.Effect) }

// IDOf returns the identity of a Node's taint.
func IDOf(t corev1.Taint) ID { return ID{t.Key, t.Effect} }

// MachineID returns the identity of a Machine's taint.
func MachineID(t clusterv1.MachineTaint) ID { return ID{t.Key, t.Effect} }

// Always reports whether the taint is kept on the Node for as long as it is declared.
func Always(t clusterv1.MachineTaint) bool {
	return t.Propagation == clusterv1.MachineTaintPropagationAlways
}

// Initialize reports whether the Node gets the taint only once. Cluster API calls this propagation OnInitialization.
func Initialize(t clusterv1.MachineTaint) bool {
	return t.Propagation == clusterv1.MachineTaintPropagationOnInitialization
}

// ByID returns the taints by identity. If several taints have the same identity, the first counts.
func ByID(taints []corev1.Taint) map[ID]corev1.Taint {
	all := make(map[ID]corev1.Taint, len(taints))
	for _, t := range slices.Backward(taints) {
		all[IDOf(t)] = t
	}
	return all
}

// Find returns the position of the taint with this identity in taints, or -1.
func Find(taints []corev1.Taint, id ID) int {
	return slices.IndexFunc(taints, func(t corev1.Taint) bool { return IDOf(t) == id })
}

// Merge returns typed and annotated taints as a list, sorted by key and effect, with each key and effect once. A typed taint wins over an
// annotated taint (docs/design.md §3); within each list, the first taint wins.
func Merge(typed, annotated []clusterv1.MachineTaint) []clusterv1.MachineTaint {
	merged := slices.Concat(typed, annotated)
	slices.SortStableFunc(merged, func(a, b clusterv1.MachineTaint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect))
	})
	return slices.CompactFunc(merged, func(a, b clusterv1.MachineTaint) bool { return MachineID(a) == MachineID(b) })
}

// ForNode converts a Machine's taint to a Node's taint, in the form that the API server stores.
func ForNode(t clusterv1.MachineTaint) corev1.Taint {
	return corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
}

// Sync returns a Node's taints after inheritance (rule 13, docs/design.md §1 and §3):
//
//   - Always taints are there, with their value.
//   - OnInitialization taints are added if the Node has not been initialized yet; later they are neither added nor removed.
//   - A taint that is recorded as ours and no longer declared is removed, unless its value has changed since.
//   - Every other taint stays as it is.
//
// Sync keeps the order and appends new taints, so that equal input gives equal output.
func Sync(current []corev1.Taint, declared []clusterv1.MachineTaint, recorded []corev1.Taint, initialized bool) []corev1.Taint {
	keep := map[ID]bool{}
	for _, t := range declared {
		keep[MachineID(t)] = true
	}
	ours := sets.New(recorded...) // a taint in Cluster API's form has no value, and stands for any value
	result := slices.DeleteFunc(slices.Clone(current), func(t corev1.Taint) bool {
		anyValue := corev1.Taint{Key: t.Key, Effect: t.Effect}
		return !keep[IDOf(t)] && (ours.Has(anyValue) || ours.Has(corev1.Taint{Key: t.Key, Effect: t.Effect, Value: t.Value}))
	})
	at := make(map[ID]int, len(result))
	for i, t := range slices.Backward(result) {
		at[IDOf(t)] = i
	}
	for _, t := range declared {
		if !Always(t) && (!Initialize(t) || initialized) {
			continue
		}
		i, present := at[MachineID(t)]
		switch {
		case !present:
			at[MachineID(t)], result = len(result), append(result, ForNode(t))
		case result[i].Value != t.Value:
			result[i] = ForNode(t)
		}
	}
	return result
}

// Remove returns the taints without the taint that has this identity.
func Remove(taints []corev1.Taint, id ID) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return IDOf(t) == id })
}

// Parse parses a taint in kubectl's syntax, "<key>=<value>:<effect>" or "<key>:<effect>". It checks the form only; Validate checks the
// content.
func Parse(s string) (corev1.Taint, error) {
	keyValue, effect, ok := strings.Cut(s, ":")
	key, value, _ := strings.Cut(keyValue, "=")
	const expected = "expected <key>=<value>:<effect> or <key>:<effect>"
	switch {
	case !ok || effect == "":
		return corev1.Taint{}, fmt.Errorf("taint %q lacks an effect: %s", s, expected)
	case strings.Contains(effect, ":"):
		return corev1.Taint{}, fmt.Errorf("taint %q has more than one colon: %s", s, expected)
	case key == "":
		return corev1.Taint{}, fmt.Errorf("taint %q has no key: %s", s, expected)
	case strings.Contains(value, "="):
		return corev1.Taint{}, fmt.Errorf("taint %q has more than one equals sign: expected <key>=<value>:<effect>", s)
	}
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}

// ParseList parses a comma-separated list of taints. Invalid entries are left out and reported together in the error. After MostProblems
// invalid entries, the rest of the list is left out as well.
func ParseList(s string) ([]corev1.Taint, error) { return parseList(s, longestList, Parse) }

func parseList[T any](s string, longest int, parse func(string) (T, error)) ([]T, error) {
	if len(s) > longest {
		return nil, fmt.Errorf("%d bytes of taints are more than %d", len(s), longest)
	}
	var all []T
	var errs []error
	entries := Split(s)
	for i, entry := range entries {
		one, err := parse(entry)
		if err == nil {
			all = append(all, one)
			continue
		}
		if errs = append(errs, err); len(errs) == MostProblems && i+1 < len(entries) {
			errs = append(errs, fmt.Errorf("and %d more entries, which were not read", len(entries)-i-1))
			break
		}
	}
	return all, errors.Join(errs...)
}

// longestList is the maximum size of a list in bytes: an API server accepts no more bytes of annotations. longestDeclaration is the maximum
// size of an annotation that declares taints, which is parsed for each Node.
const longestList, longestDeclaration = apivalidation.TotalAnnotationSizeLimitB, 16 << 10

// Split splits a comma-separated list. It ignores blanks around entries, empty entries, and a list that is longer than an API server
// stores.
func Split(list string) (entries []string) {
	if len(list) > longestList {
		return nil
	}
	for entry := range strings.SplitSeq(list, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			entries = append(entries, entry)
		}
	}
	return entries
}

// Join returns the entries as a sorted, comma-separated list without duplicates. It sorts entries in place.
func Join(entries []string) string {
	slices.Sort(entries)
	return strings.Join(slices.Compact(entries), ",")
}

// FromAnnotations returns the taints that an object's annotations declare. If Always and Initialize name the same key and effect, Always
// wins. Start-up gates are OnInitialization taints. Invalid entries are left out; unreadable has an error for each annotation with invalid
// entries.
func FromAnnotations(annotations map[string]string) (taints []clusterv1.MachineTaint, unreadable map[string]error) {
	unreadable = map[string]error{}
	for _, name := range Annotations {
		declared, err := declared(annotations, name)
		if err != nil {
			unreadable[name] = err
		}
		taints = append(taints, declared...)
	}
	return Merge(taints, nil), unreadable
}

func declared(annotations map[string]string, name string) ([]clusterv1.MachineTaint, error) {
	propagation := clusterv1.MachineTaintPropagationOnInitialization
	if name == AlwaysAnnotation {
		propagation = clusterv1.MachineTaintPropagationAlways
	}
	var taints []clusterv1.MachineTaint
	parsed, err := parseList(annotations[name], longestDeclaration, parserOf(name))
	for _, t := range parsed {
		taints = append(taints, clusterv1.MachineTaint{Key: t.Key, Value: t.Value, Effect: t.Effect, Propagation: propagation})
	}
	return taints, err
}

// ToAnnotations returns the annotations that declare the taints; it is the inverse of FromAnnotations, without start-up gates.
func ToAnnotations(taints []clusterv1.MachineTaint) map[string]string {
	annotations := map[string]string{}
	for name, declares := range map[string]func(clusterv1.MachineTaint) bool{AlwaysAnnotation: Always, InitializeAnnotation: Initialize} {
		var list []corev1.Taint
		for _, t := range taints {
			if declares(t) {
				list = append(list, ForNode(t))
			}
		}
		if len(list) > 0 {
			annotations[name] = FormatList(list)
		}
	}
	return annotations
}

// Format returns the taint in kubectl's syntax.
func Format(t corev1.Taint) string {
	if t.Value == "" {
		return IDOf(t).String()
	}
	return t.Key + "=" + t.Value + ":" + string(t.Effect)
}

// FormatList returns the taints in kubectl's syntax, sorted and comma-separated.
func FormatList(taints []corev1.Taint) string { return formatSorted(taints, Format) }

// FormatIDs returns "<key>:<effect>" of the taints, sorted and comma-separated: the form of Cluster API's tracking annotation.
func FormatIDs(taints []corev1.Taint) string {
	return formatSorted(taints, func(t corev1.Taint) string { return IDOf(t).String() })
}

func formatSorted(taints []corev1.Taint, format func(corev1.Taint) string) string {
	formatted := make([]string, 0, len(taints))
	for _, t := range taints {
		formatted = append(formatted, format(t))
	}
	return Join(formatted)
}
