// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// List is the answer for several objects.
type List struct {
	metav1.TypeMeta `json:",inline"`
	Items           []*Explanation `json:"items"`
	// Notes are sentences about all of them.
	Notes []string `json:"notes,omitempty"`

	// key is the only key of interest, if there is one.
	key string `json:"-"`
}

// NewList returns the answer for several objects.
func NewList(all []*Explanation, notes ...string) *List {
	return &List{TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "ExplanationList"}, Items: all, Notes: notes}
}

// Object is one to explain.
type Object struct {
	schema.GroupVersionKind
	Key types.NamespacedName
}

// many is from how many objects on it is faster to list all objects of Cluster API than to get each owner.
const many = 5

// All explains objects, as far as it can.
func (x *Explainer) All(ctx context.Context, objects []Object) ([]*Explanation, error) {
	if len(objects) >= many {
		_ = x.prefetch(ctx) // you may be allowed to get each object, but not to list them
	}
	var found []*Explanation
	var errs []error
	for _, object := range objects {
		e, err := x.Explain(ctx, object.GroupVersionKind, object.Key)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found = append(found, e)
	}
	return found, errors.Join(errs...)
}

// Wrong reports whether something is missing or differs.
func (l *List) Wrong() bool {
	return slices.ContainsFunc(l.Items, func(e *Explanation) bool { return !e.AsItShould() })
}

// Only keeps the entries of one key, and reports whether it is missing, differs or is absent somewhere. Notes name the objects that
// do not know the key.
func (l *List) Only(key string) (wrong bool) {
	l.key = key
	var nowhere []string
	for _, e := range l.Items {
		if !e.Only(key) {
			nowhere = append(nowhere, e.Nowhere(key))
		}
		wrong = wrong || !e.AsItShould() || e.AllAbsent()
	}
	const shown = 5
	switch {
	case len(nowhere) <= shown && (len(nowhere) == len(l.Items) || len(nowhere) == 1):
		l.Notes = append(nowhere, l.Notes...)
	case len(nowhere) > 0:
		note := fmt.Sprintf("%d of %d objects have no %q and no owner that declares it.", len(nowhere), len(l.Items), key)
		l.Notes = append([]string{note}, l.Notes...)
	}
	return wrong
}

// Single returns the only explanation, with the notes of the list.
func (l *List) Single() *Explanation {
	e := *l.Items[0]
	e.Notes = slices.Concat(l.Notes, e.Notes)
	return &e
}

// AllNotes returns the notes of the list and of all objects, each once. A note that is not about all objects names those that it is
// about.
func (l *List) AllNotes() []string {
	about := map[string][]string{}
	var order []string
	for _, e := range l.Items {
		for _, note := range append(l.reasons(e), e.Notes...) {
			if len(about[note]) == 0 {
				order = append(order, note)
			}
			about[note] = append(about[note], e.Object)
		}
	}
	notes := slices.Clone(l.Notes)
	for _, note := range order {
		if objects := about[note]; len(objects) < len(l.Items) {
			note = some(objects) + ": " + note
		}
		notes = append(notes, note)
	}
	return notes
}

// reasons says in sentences why the key of interest is not there. For several keys, the table says it in one word.
func (l *List) reasons(e *Explanation) []string {
	if l.key == "" {
		return nil
	}
	var reasons []string
	for _, entry := range e.Entries {
		if entry.Message != "" {
			reasons = append(reasons, fmt.Sprintf("%s %s: %s", entry.Kind, entry.Key, entry.Message))
		}
	}
	return reasons
}

// some names the first objects, and says how many more there are.
func some(objects []string) string {
	const shown = 3
	if len(objects) <= shown {
		return strings.Join(objects, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(objects[:shown], ", "), len(objects)-shown)
}
