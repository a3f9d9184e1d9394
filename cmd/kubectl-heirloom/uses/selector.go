// SPDX-License-Identifier: Apache-2.0

package uses

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// Effect says how an object depends on a label.
type Effect string

// The effects, the worst first.
const (
	// Requires means that without the label a Node matches no longer.
	Requires Effect = "requires"
	// Forbids means that with the label a Node does not match.
	Forbids Effect = "forbids"
	// Alternative means that the label decides, unless another part of the selector does.
	Alternative Effect = "alternative"
	// Prefers means that the scheduler weighs the label.
	Prefers Effect = "prefers"
	// Unknown means that the selector cannot be read, and contains the key.
	Unknown Effect = "unknown"
)

// Change is a change of a label of Nodes. Before is the value before the change; nil stands for any value. After is the value after the
// change; nil means that the label is removed.
type Change struct {
	Key           string
	Before, After *string
	// OfValue says that the question is about the value Before, and not about a Node that loses it: another value that the selector names is
	// then an alternative.
	OfValue bool
}

// Selector selects Nodes by their labels.
type Selector struct {
	// Field is the path of the selector in its object, and text the selector as it is written there; empty if the conditions say it.
	Field, text string
	// matches is the condition for a Node.
	matches condition
	// topology is the key of a topology: the label divides the Nodes into domains, instead of selecting Nodes.
	topology string
	// prefers says that the scheduler only weighs the selector.
	prefers bool
	// unreadable says that only the text is known.
	unreadable bool
}

// condition is a condition on the labels of a Node: a test of a label or, if operator is set, a combination of conditions.
type condition struct {
	operator string // and, or, not
	of       []condition

	key, text string // without a key, the condition depends on no label
	test      func(labels.Set) bool
	// values are values for which the test may differ from its result for any other value.
	values []string
}

func and(of ...condition) condition { return condition{operator: "and", of: of} }
func or(of ...condition) condition  { return condition{operator: "or", of: of} }
func not(of condition) condition    { return condition{operator: "not", of: []condition{of}} }

// can reports whether labels of Nodes that agree on the value of a key can satisfy the condition, and whether they can fail it. All other
// labels may have any value.
func (c condition) can(key string, value labels.Set) (hold, fail bool) {
	switch c.operator {
	case "":
		if c.key != key {
			return true, true
		}
		hold = c.test(value)
		return hold, !hold
	case "not":
		fail, hold = c.of[0].can(key, value)
		return hold, fail
	}
	hold, fail = c.operator == "and", c.operator == "or"
	for _, one := range c.of {
		holds, fails := one.can(key, value)
		if c.operator == "and" {
			hold, fail = hold && holds, fail || fails
		} else {
			hold, fail = hold || holds, fail && fails
		}
	}
	return hold, fail
}

// tests returns the tests of a label in the condition.
func (c condition) tests(key string) (all []condition) {
	if c.operator == "" && c.key == key {
		return []condition{c}
	}
	for _, one := range c.of {
		all = append(all, one.tests(key)...)
	}
	return all
}

// Use returns the effect of a change on the selector; false if the change makes no difference.
func (s Selector) Use(change Change) (Use, bool) {
	use := Use{Field: s.Field, Expression: s.text}
	tests := s.matches.tests(change.Key)
	if s.text == "" {
		var texts []string
		for _, test := range tests {
			texts = append(texts, test.text)
		}
		use.Expression = strings.Join(slices.Compact(texts), ", ")
	}
	switch {
	case s.unreadable:
		use.Effect = Unknown
		return use, strings.Contains(s.text, change.Key)
	case s.topology == change.Key:
		use.Effect = Requires
	default:
		use.Effect = s.matches.effect(change, tests)
	}
	if use.Effect != "" && s.prefers {
		use.Effect = Prefers
	}
	return use, use.Effect != ""
}

// effect returns the effect of a change; empty if the change makes no difference.
func (c condition) effect(change Change, tests []condition) (effect Effect) {
	before, after := []string{ptr.Deref(change.Before, "")}, labels.Set{}
	if change.After != nil {
		after[change.Key] = *change.After
	}
	if change.Before == nil {
		for _, test := range tests {
			before = append(before, test.values...)
		}
	}
	named := c.satisfying(change.Key, tests)
	for _, value := range before {
		before := labels.Set{change.Key: value}
		held, _ := c.can(change.Key, before)
		holds, _ := c.can(change.Key, after)
		switch {
		case held && !holds && change.OfValue && slices.ContainsFunc(named, func(other string) bool { return other != value }):
			return Alternative
		case held && !holds:
			return Requires
		case !held && holds:
			effect = Forbids
		case effect == "" && slices.ContainsFunc(tests, func(test condition) bool { return test.test(before) != test.test(after) }):
			effect = c.undecided(change.Key, named)
		}
	}
	return effect
}

// satisfying returns the values in the tests of a label that can satisfy the condition.
func (c condition) satisfying(key string, tests []condition) (all []string) {
	for _, test := range tests {
		for _, value := range test.values {
			if hold, _ := c.can(key, labels.Set{key: value}); hold {
				all = append(all, value)
			}
		}
	}
	return all
}

// undecided returns the effect of a change that tests notice, although it does not decide: the label is an alternative, unless no Node can
// satisfy the condition, without the label, with a value that the condition names, or with another.
func (c condition) undecided(key string, named []string) Effect {
	absent, _ := c.can(key, labels.Set{})
	other, _ := c.can(key, labels.Set{key: ""})
	if absent || other || len(named) > 0 {
		return Alternative
	}
	return Requires
}
