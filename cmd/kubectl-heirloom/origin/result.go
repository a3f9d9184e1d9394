// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Explanation is the answer for one object.
type Explanation struct {
	metav1.TypeMeta `json:",inline"`
	// Object is what is explained, "<kind> <namespace>/<name>".
	Object string `json:"object"`
	// Cluster is the Cluster of a Node, "<namespace>/<name>".
	Cluster string `json:"cluster,omitempty"`
	// Entries are sorted by kind and key.
	Entries []Entry `json:"entries"`
	// Notes are sentences about the whole object.
	Notes []string `json:"notes,omitempty"`

	// name is the object's for --output=name.
	name string `json:"-"`
	// owners are the objects that may declare something for this one, from the top.
	owners []string `json:"-"`
	// declares says that the object inherits nothing, and declares for others.
	declares bool `json:"-"`
}

// Kind says what an entry is.
type Kind string

// The kinds of entries, in the order in which they are shown. Those of a template are below spec.template. A field is one that
// Cluster API changes in place, such as nodeDrainTimeoutSeconds.
const (
	Label              Kind = "label"
	Annotation         Kind = "annotation"
	Taint              Kind = "taint"
	Field              Kind = "field"
	TemplateLabel      Kind = "template label"
	TemplateAnnotation Kind = "template annotation"
	TemplateTaint      Kind = "template taint"
	TemplateField      Kind = "template field"
)

// Status says whether an entry is as it should be.
type Status string

const (
	// AsDeclared entries are inherited, and as an owner declares them.
	AsDeclared Status = "asDeclared"
	// Differs means that an owner declares another value, or nothing any more.
	Differs Status = "differs"
	// Missing entries are inherited, and not there yet or not there any more.
	Missing Status = "missing"
	// Own entries were set on the object itself.
	Own Status = "own"
	// Record entries are bookkeeping of Heirloom and Cluster API about what a Node inherits.
	Record Status = "record"
	// Absent entries are declared further up, and the object does not inherit them. The entry's reason says why.
	Absent Status = "absent"
	// Declares means that the object declares the entry for others, as a Cluster and a ClusterClass do.
	Declares Status = "declares"
)

// Entry is one label, annotation, taint or field, and where it comes from.
type Entry struct {
	Kind Kind `json:"kind"`
	// Key is "<key>:<effect>" for a taint, and "readinessGates[<type>]" for a readiness gate.
	Key   string `json:"key"`
	Value string `json:"value"`
	// Propagation is that of a Machine's taint.
	Propagation string `json:"propagation,omitempty"`
	Status      Status `json:"status"`
	// Declared is what an owner declares, if the object has something else. It is nil if no owner declares the entry any more.
	Declared            *string `json:"declared,omitempty"`
	DeclaredPropagation string  `json:"declaredPropagation,omitempty"`
	// From is where it comes from, in words.
	From string `json:"from"`
	// Source is the object and the field that declare it.
	Source *Source `json:"source,omitempty"`
	// Rule is the rule by which the object inherits it, such as "MachineDeployment → MachineSet (rule 6)". docs/rules.md has all rules.
	Rule string `json:"rule,omitempty"`
	// Steps are the objects between the source and this object, from the top.
	Steps []string `json:"steps,omitempty"`
	// Managers are the field managers that own it here.
	Managers []string `json:"managers,omitempty"`
	// OwnedByHeirloom says that one of them is Heirloom.
	OwnedByHeirloom bool `json:"ownedByHeirloom"`
	// Records are the annotations of a Node that list it as its Machine's.
	Records []string `json:"records,omitempty"`
	// Reason is why it is absent or missing, for programs; Message says it in a sentence, with what to do.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Source is an object, and a field in it.
type Source struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Field     string `json:"field,omitempty"`
}

// AsItShould reports whether nothing is missing and nothing differs from what is declared.
func (e *Explanation) AsItShould() bool {
	return !slices.ContainsFunc(e.Entries, func(e Entry) bool { return e.Status == Missing || e.Status == Differs })
}

// shareReasons gives the reason why a key is missing in a Machine template to the same key beside it, and the other way round.
func (e *Explanation) shareReasons() {
	for i := range e.Entries {
		entry := &e.Entries[i]
		if entry.Reason != "" || entry.Status != Missing && entry.Status != Differs {
			continue
		}
		same := slices.IndexFunc(e.Entries, func(other Entry) bool {
			return other.Reason != "" && other.Status != Absent && other.Key == entry.Key && other.Kind.atTop() == entry.Kind.atTop()
		})
		if same >= 0 {
			entry.Reason, entry.Message = e.Entries[same].Reason, e.Entries[same].Message
		}
	}
}

// atTop is the kind without the template that it is in.
func (k Kind) atTop() Kind {
	return Kind(strings.TrimPrefix(string(k), "template "))
}

func newExplanation(name string, notes []string) *Explanation {
	return &Explanation{
		TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Explanation"}, Object: name, Entries: []Entry{}, Notes: notes,
	}
}

// explanation compares what an object has with what it inherits, place by place.
func explanation(object metav1.Object, name string, notes []string, places ...place) (*Explanation, error) {
	owners, err := readManagers(object.GetManagedFields())
	if err != nil {
		return nil, err
	}
	e := newExplanation(name, notes)
	for _, p := range places {
		e.Entries = append(e.Entries, p.entries(owners)...)
	}
	sortEntries(e.Entries)
	return e, nil
}

func sortEntries(entries []Entry) {
	order := []Kind{Label, Annotation, Taint, Field, TemplateLabel, TemplateAnnotation, TemplateTaint, TemplateField}
	slices.SortStableFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(a.Key, b.Key))
	})
}
