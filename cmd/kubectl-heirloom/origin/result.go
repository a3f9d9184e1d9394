// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Explanation is the answer for one object.
type Explanation struct {
	metav1.TypeMeta `json:",inline"`

	// Object is what is explained, "<kind> <namespace>/<name>".
	Object string `json:"object"`
	// Entries are sorted by kind and key.
	Entries []Entry `json:"entries"`
	// Notes are sentences about the whole object.
	Notes []string `json:"notes,omitempty"`
}

// Kind says what an entry is.
type Kind string

// The kinds of entries, in the order in which they are shown. Those of a template are below spec.template.
const (
	Label              Kind = "label"
	Annotation         Kind = "annotation"
	Taint              Kind = "taint"
	TemplateLabel      Kind = "template label"
	TemplateAnnotation Kind = "template annotation"
	TemplateTaint      Kind = "template taint"
)

// Entry is one label, annotation or taint and where it comes from.
type Entry struct {
	Kind Kind `json:"kind"`
	// Key is "<key>:<effect>" for a taint.
	Key   string `json:"key"`
	Value string `json:"value"`
	// Propagation is that of a Machine's taint.
	Propagation string `json:"propagation,omitempty"`
	// From is where it comes from, in words.
	From string `json:"from"`
	// Inherited says that From is an object further up, and the field there.
	Inherited bool `json:"inherited"`
	// Managers are the field managers that own it here.
	Managers []string `json:"managers,omitempty"`
	// OwnedByHeirloom says that one of them is Heirloom.
	OwnedByHeirloom bool `json:"ownedByHeirloom"`
}

// explanation compares what an object has with what it inherits, place by place.
func explanation(object metav1.Object, name string, notes []string, places ...place) (*Explanation, error) {
	owners, err := readManagers(object.GetManagedFields())
	if err != nil {
		return nil, err
	}
	e := &Explanation{
		TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Explanation"},
		Object:   name,
		Entries:  []Entry{},
		Notes:    notes,
	}
	for _, p := range places {
		e.Entries = append(e.Entries, p.entries(owners)...)
	}
	return e, nil
}

func sortEntries(entries []Entry) {
	order := []Kind{Label, Annotation, Taint, TemplateLabel, TemplateAnnotation, TemplateTaint}
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(a.Key, b.Key))
	})
}
