// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// fieldKey names the sort of in-place fields, beside labelKey, annotationKey and taintKey.
const fieldKey = "field"

// Problem is an entry that an object does not inherit, and why.
type Problem struct {
	Entry
	// Value is the value of a label, if it is what is wrong.
	Value string
	// Reason is the rest of a sentence.
	Reason string
}

// longest is how many bytes of a name or a value a message repeats. Users choose them, and they may be of any length.
const longest = 128

// Error implements error.
func (p *Problem) Error() string {
	value := ""
	if p.Value != "" {
		value = fmt.Sprintf("=%q", shorten(p.Value))
	}
	where := "template "
	if p.Own {
		where = ""
	}
	return fmt.Sprintf("%s%s %q%s: %s", where, p.What, shorten(p.Name), value, p.Reason)
}

func shorten(s string) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "…"
}

// Problems returns the problems that are joined in an error, one by one.
func Problems(err error) []error {
	if err == nil {
		return nil
	}
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, one := range several.Unwrap() {
		all = append(all, Problems(one)...)
	}
	return all
}

// mostSaid is how many problems are reported one by one: warnings and Events have little room, and an owner may have any number.
const mostSaid = 10

// Located returns an error that says where each problem is declared, and how many more there are. The source comes first, because
// API servers cut long warnings off. A problem about no single entry names the metadata of the last source.
func (s Sources) Located(err error) error {
	var all []error
	problems := Problems(err)
	for i, problem := range problems {
		if i == mostSaid {
			all = append(all, fmt.Errorf("%d more", len(problems)-i))
			break
		}
		if source := s.Of(EntryOf(problem)); source.Object != nil {
			problem = fmt.Errorf("%s: %w", source, problem)
		}
		all = append(all, problem)
	}
	return errors.Join(all...)
}

// EntryOf returns the entry that an error is about. It is empty if the error is about no single one.
func EntryOf(err error) Entry {
	var problem *Problem
	var unusable *taint.UnusableError
	var unreadable *taint.AnnotationError
	switch {
	case errors.As(err, &problem):
		return problem.Entry
	case errors.As(err, &unusable):
		return TaintEntry(unusable.ID)
	case errors.As(err, &unreadable):
		return Entry{What: annotationKey, Name: unreadable.Name}
	}
	return Entry{}
}
