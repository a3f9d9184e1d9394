// SPDX-License-Identifier: Apache-2.0

package taint

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// UntilAnnotation declares start-up gates, separated by commas: "<taint> until condition <type>=<status>" or "<taint> until daemonset
// <namespace>/<name>". A Node gets the taint once, when it registers, and loses it once, when the gate opens.
const UntilAnnotation = "taints.heirloom.dev/until"

// Annotations are the annotations that declare taints. If several name the same key and effect, the first wins.
//
//nolint:gochecknoglobals // a table that nothing changes
var Annotations = []string{AlwaysAnnotation, UntilAnnotation, InitializeAnnotation}

// Gate is a taint that is on a Node until the Node has a condition with a status, or a ready Pod of a DaemonSet.
type Gate struct {
	Taint     corev1.Taint
	Condition corev1.NodeConditionType
	Status    corev1.ConditionStatus
	DaemonSet types.NamespacedName // empty if the gate waits for a condition
}

// String returns the gate as it is declared.
func (g Gate) String() string {
	if g.DaemonSet.Name != "" {
		return Format(g.Taint) + " until daemonset " + g.DaemonSet.String()
	}
	return Format(g.Taint) + " until condition " + string(g.Condition) + "=" + string(g.Status)
}

// ParseGate parses a gate. Validate checks its taint.
func ParseGate(s string) (g Gate, err error) {
	words := strings.Fields(s)
	if len(words) != 4 || words[1] != "until" {
		return Gate{}, fmt.Errorf("start-up gate %q: expected <taint> until condition <type>=<status>, or <taint> until daemonset <namespace>/<name>", s)
	}
	if g.Taint, err = Parse(words[0]); err != nil {
		return Gate{}, err
	}
	var problems []string
	switch words[2] {
	case "condition":
		name, status, _ := strings.Cut(words[3], "=")
		g.Condition, g.Status = corev1.NodeConditionType(name), corev1.ConditionStatus(status)
		problems = validation.IsQualifiedName(name)
		if !slices.Contains([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}, g.Status) {
			problems = append(problems, "the status must be True, False or Unknown")
		}
	case "daemonset":
		g.DaemonSet.Namespace, g.DaemonSet.Name, _ = strings.Cut(words[3], "/")
		if g.DaemonSet.Namespace == "" || g.DaemonSet.Name == "" {
			problems = []string{"daemonset must be <namespace>/<name>"}
			break
		}
		problems = slices.Concat(validation.IsDNS1123Label(g.DaemonSet.Namespace), validation.IsDNS1123Subdomain(g.DaemonSet.Name))
	default:
		problems = []string{"a gate must wait for a condition or a daemonset"}
	}
	if len(problems) > 0 {
		return Gate{}, fmt.Errorf("start-up gate %q: %s", s, strings.Join(problems, "; "))
	}
	return g, nil
}

// Gates returns the start-up gates that an object's annotations declare, by the identity of their taints. Invalid entries are left out.
func Gates(annotations map[string]string) map[ID]Gate {
	list, _ := parseList(annotations[UntilAnnotation], longestDeclaration, ParseGate) // FromAnnotations reports invalid entries
	gates := make(map[ID]Gate, len(list))
	for _, g := range slices.Backward(list) { // the first wins
		gates[IDOf(g.Taint)] = g
	}
	return gates
}

// parserOf returns the function that parses an entry of an annotation.
func parserOf(annotation string) func(string) (corev1.Taint, error) {
	if annotation != UntilAnnotation {
		return Parse
	}
	return func(s string) (corev1.Taint, error) {
		g, err := ParseGate(s)
		return g.Taint, err
	}
}
