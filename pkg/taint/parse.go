// SPDX-License-Identifier: Apache-2.0

package taint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Parse reads one taint in kubectl's syntax, "<key>=<value>:<effect>" or "<key>:<effect>".
// It checks the form only; Validate checks the content.
func Parse(s string) (corev1.Taint, error) {
	keyValue, effect, ok := strings.Cut(s, ":")
	if !ok || effect == "" {
		return corev1.Taint{}, fmt.Errorf("taint %q has no effect: expected <key>=<value>:<effect> or <key>:<effect>", s)
	}
	if strings.Contains(effect, ":") {
		return corev1.Taint{}, fmt.Errorf("taint %q has more than one colon: expected <key>=<value>:<effect> or <key>:<effect>", s)
	}
	key, value, _ := strings.Cut(keyValue, "=")
	if key == "" {
		return corev1.Taint{}, fmt.Errorf("taint %q has no key: expected <key>=<value>:<effect> or <key>:<effect>", s)
	}
	if strings.Contains(value, "=") {
		return corev1.Taint{}, fmt.Errorf("taint %q has more than one equals sign: expected <key>=<value>:<effect>", s)
	}
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}

// ParseList reads a comma-separated list of taints. Entries that are not taints are left out and reported together
// in the error; the taints that could be read are returned beside it, so that one typo never loses the others.
func ParseList(s string) ([]corev1.Taint, error) {
	if len(s) > longestList {
		return nil, fmt.Errorf("%d bytes of taints: no object can have more than %d", len(s), longestList)
	}
	var taints []corev1.Taint
	var errs []error
	wrong := 0
	for _, entry := range entriesOf(s) {
		t, err := Parse(entry)
		if err == nil {
			taints = append(taints, t)
		} else if wrong++; wrong <= MostProblems {
			errs = append(errs, err)
		}
	}
	if wrong > MostProblems {
		errs = append(errs, fmt.Errorf("and %d more", wrong-MostProblems))
	}
	return taints, errors.Join(errs...)
}

// longestList is how long all annotations of an object together can be: API servers refuse more.
const longestList = apivalidation.TotalAnnotationSizeLimitB

// entriesOf splits a comma-separated list; blanks around entries and empty entries do not count.
func entriesOf(list string) []string {
	var entries []string
	for entry := range strings.SplitSeq(list, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			entries = append(entries, entry)
		}
	}
	return entries
}

// FromAnnotations returns the taints that an object's annotations declare, Always before Initialize where both name
// the same key and effect. Entries that cannot be read are left out, and reported for each annotation.
func FromAnnotations(annotations map[string]string) (taints []clusterv1.MachineTaint, unreadable map[string]error) {
	var all []clusterv1.MachineTaint
	for _, name := range []string{AlwaysAnnotation, InitializeAnnotation} {
		declared, err := declared(annotations, name)
		if err != nil && unreadable == nil {
			unreadable = map[string]error{}
		}
		if err != nil {
			unreadable[name] = err
		}
		all = append(all, declared...)
	}
	return Merge(all, nil), unreadable
}

func declared(annotations map[string]string, name string) ([]clusterv1.MachineTaint, error) {
	propagation := clusterv1.MachineTaintPropagationOnInitialization
	if name == AlwaysAnnotation {
		propagation = clusterv1.MachineTaintPropagationAlways
	}
	parsed, err := ParseList(annotations[name])
	taints := make([]clusterv1.MachineTaint, 0, len(parsed))
	for _, t := range parsed {
		taints = append(taints, clusterv1.MachineTaint{Key: t.Key, Value: t.Value, Effect: t.Effect, Propagation: propagation})
	}
	return taints, err
}

// ToAnnotations returns the annotations that declare the taints; it is the inverse of FromAnnotations.
func ToAnnotations(taints []clusterv1.MachineTaint) map[string]string {
	byName := map[string][]corev1.Taint{}
	for _, t := range taints {
		name := InitializeAnnotation
		if Always(t) {
			name = AlwaysAnnotation
		}
		byName[name] = append(byName[name], ForNode(t))
	}
	annotations := make(map[string]string, len(byName))
	for name, list := range byName {
		annotations[name] = FormatList(list)
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
func FormatList(taints []corev1.Taint) string {
	return formatSorted(taints, Format)
}

// FormatIDs returns "<key>:<effect>" of the taints, sorted and comma-separated: the form of Cluster API's own tracking.
func FormatIDs(taints []corev1.Taint) string {
	return formatSorted(taints, func(t corev1.Taint) string { return IDOf(t).String() })
}

func formatSorted(taints []corev1.Taint, format func(corev1.Taint) string) string {
	formatted := make([]string, 0, len(taints))
	for _, t := range taints {
		formatted = append(formatted, format(t))
	}
	slices.Sort(formatted)
	return strings.Join(slices.Compact(formatted), ",")
}
