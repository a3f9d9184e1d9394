// SPDX-License-Identifier: Apache-2.0

package taint

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// UntilAnnotation declares start-up gates, separated by commas, each in the form that gateSyntax says. A Node gets the taint once, when it
// registers, and loses it once, when the gate opens.
const UntilAnnotation = "taints.heirloom.dev/until"

// Annotations are the annotations that declare taints. If several name the same key and effect, the first wins.
//
//nolint:gochecknoglobals // a table that nothing changes
var Annotations = []string{AlwaysAnnotation, UntilAnnotation, InitializeAnnotation}

const (
	gateSyntax    = "<taint> until <requirement> [and <requirement>]... [within <duration>]"
	requirementIs = "condition <type>=<status>, daemonset <namespace>/<name>, allocatable <resource> or csinode <driver>"
	// mostRequirements limits the requirements of a gate, because the loop looks for each of them again and again.
	mostRequirements = 8
)

// Gate is a taint that is on a Node until the Node has met all requirements.
type Gate struct {
	Taint corev1.Taint
	Until []Requirement
	// Within is the time after the registration of a Node in which the gate should open, or 0.
	Within time.Duration
}

// Requirement is one thing that a start-up gate waits for.
type Requirement struct {
	Kind RequirementKind
	// Name is "<type>=<status>" of a condition, "<namespace>/<name>" of a DaemonSet, or the name of a resource or of a driver.
	Name string
}

// RequirementKind is the word before the name of a requirement.
type RequirementKind string

// The kinds of requirements.
const (
	Condition   RequirementKind = "condition"   // the Node has the condition with the status
	DaemonSet   RequirementKind = "daemonset"   // a Pod of the DaemonSet is ready on the Node
	Allocatable RequirementKind = "allocatable" // the Node can allocate some of the resource
	CSINode     RequirementKind = "csinode"     // the CSI driver has registered on the Node
)

// String returns the requirement as it is declared.
func (r Requirement) String() string { return string(r.Kind) + " " + r.Name }

// OnNode reports whether the Node itself shows that it meets the requirement. Otherwise, other objects do.
func (r Requirement) OnNode() bool { return r.Kind == Condition || r.Kind == Allocatable }

// String returns the gate as it is declared.
func (g Gate) String() string {
	text := Format(g.Taint) + " until " + Requirements(g.Until)
	if g.Within > 0 {
		text += " within " + strings.Replace(strings.Replace(g.Within.String(), "m0s", "m", 1), "h0m", "h", 1)
	}
	return text
}

// Requirements returns requirements as they are declared.
func Requirements(all []Requirement) string {
	texts := make([]string, 0, len(all))
	for _, r := range all {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, " and ")
}

// ParseGate parses a gate. Validate checks its taint.
func ParseGate(s string) (Gate, error) {
	words := strings.Fields(s)
	if len(words) < 2 || words[1] != "until" {
		return Gate{}, fmt.Errorf("start-up gate %q: expected %s", s, gateSyntax)
	}
	t, err := Parse(words[0])
	if err != nil {
		return Gate{}, err
	}
	g := Gate{Taint: t}
	if g.Until, g.Within, err = parseUntil(words); err != nil {
		return Gate{}, fmt.Errorf("start-up gate %q: %w", s, err)
	}
	return g, nil
}

// parseUntil parses the words of a gate after "until".
func parseUntil(words []string) (all []Requirement, within time.Duration, err error) {
	at := 2
	for ; len(all) == 0 || word(words, at) == "and"; at += 2 {
		if len(all) > 0 {
			at++
		}
		r, err := parseRequirement(words, at)
		switch {
		case err != nil:
			return nil, 0, err
		case slices.ContainsFunc(all, func(other Requirement) bool { return other.subject() == r.subject() }):
			return nil, 0, fmt.Errorf("word %d: %s is there twice", at+1, r.subject())
		case len(all) == mostRequirements:
			return nil, 0, fmt.Errorf("word %d: a gate has at most %d requirements", at+1, mostRequirements)
		}
		all = append(all, r)
	}
	within, err = parseWithin(words, at)
	return all, within, err
}

// word returns a word, or "" after the last.
func word(words []string, at int) string {
	if at < len(words) {
		return words[at]
	}
	return ""
}

// subject returns the requirement without the status of a condition.
func (r Requirement) subject() string {
	name, _, _ := strings.Cut(r.Name, "=")
	return string(r.Kind) + " " + name
}

// parseRequirement parses the two words at a position.
func parseRequirement(words []string, at int) (Requirement, error) {
	r := Requirement{RequirementKind(word(words, at)), word(words, at+1)}
	var problems []string
	switch r.Kind {
	case Condition:
		name, status, _ := strings.Cut(r.Name, "=")
		problems = validation.IsQualifiedName(name)
		if !slices.Contains([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}, corev1.ConditionStatus(status)) {
			problems = append(problems, "the status must be True, False or Unknown")
		}
	case DaemonSet:
		namespace, name, found := strings.Cut(r.Name, "/")
		if problems = slices.Concat(validation.IsDNS1123Label(namespace), validation.IsDNS1123Subdomain(name)); !found {
			problems = []string{"a daemonset must be <namespace>/<name>"}
		}
	case Allocatable:
		if problems = validation.IsQualifiedName(r.Name); OnEveryNode(corev1.ResourceName(r.Name)) {
			problems = []string{"every Node has this resource from the start"}
		}
	case CSINode:
		if problems = validation.IsDNS1123Subdomain(strings.ToLower(r.Name)); len(r.Name) > longestDriver {
			problems = append(problems, validation.MaxLenError(longestDriver))
		}
	case "":
		return r, errors.New("it ends where a requirement is expected: " + requirementIs)
	default:
		return r, fmt.Errorf("word %d, %q: expected a requirement: %s", at+1, r.Kind, requirementIs)
	}
	if len(problems) > 0 {
		return r, fmt.Errorf("word %d, %q: %s", at+2, r.Name, strings.Join(problems, "; "))
	}
	return r, nil
}

// longestDriver is the maximum length of the name of a CSI driver.
const longestDriver = 63

// OnEveryNode reports whether every Node can allocate a resource.
func OnEveryNode(name corev1.ResourceName) bool {
	return slices.Contains([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods}, name)
}

// parseWithin parses the rest of a gate, from a position on. The rest may be empty.
func parseWithin(words []string, at int) (time.Duration, error) {
	switch text := word(words, at+1); {
	case at >= len(words):
		return 0, nil
	case words[at] != "within":
		return 0, fmt.Errorf("word %d, %q: expected and, within, or the end", at+1, words[at])
	case len(words) > at+2:
		return 0, fmt.Errorf("word %d, %q: expected the end", at+3, words[at+2])
	default:
		within, err := time.ParseDuration(text)
		if _, short := time.ParseDuration(strings.Map(zero, text)); err != nil && short == nil {
			return 0, fmt.Errorf("word %d, %q: the duration is too long", at+2, text)
		}
		if err != nil || within <= 0 {
			return 0, fmt.Errorf("word %d, %q: expected a positive duration such as 30m or 1h30m", at+2, text)
		}
		return within, nil
	}
}

// zero replaces a digit by 0: the text of a duration that is too long then becomes the text of no time.
func zero(r rune) rune {
	if '0' <= r && r <= '9' {
		return '0'
	}
	return r
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
