// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"cmp"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// Kind is the kind of an entry.
type Kind string

// The kinds of entries, in the order in which they are shown. The kinds of a template are below spec.template. Fields are the fields that
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

// Status says how an entry compares with its declaration. Every command uses these words.
type Status string

const (
	// Declared entries are inherited, with the value that an owner declares.
	Declared Status = "Declared"
	// Differs means that an owner declares another value, or no longer declares the entry.
	Differs Status = "Differs"
	// Missing entries are inherited, but the object does not have them yet, or no longer has them.
	Missing Status = "Missing"
	// Absent entries are declared further up, but the object does not inherit them. The entry's reason says why.
	Absent Status = "Absent"
	// Local entries were set on the object itself, or are declared there for others.
	Local Status = "Local"
)

// Phrase returns the status as the end of a sentence about the entry.
func (s Status) Phrase() string {
	return map[Status]string{Declared: "is as declared", Differs: "differs", Missing: "is missing", Absent: "is absent", Local: "is set here"}[s]
}

// Wrong reports whether the next write of Heirloom changes the entry.
func (s Status) Wrong() bool { return s == Missing || s == Differs }

// Entry is a label, annotation, taint or field of an object, compared with its declaration.
type Entry struct {
	Kind Kind `json:"kind"`
	// Key is "<key>:<effect>" for a taint, and "readinessGates[<type>]" for a readiness gate.
	Key string `json:"key"`
	// Value is the value in the object or, for a missing or absent entry, the declared value.
	Value string `json:"value"`
	// Propagation is the propagation of a Machine's taint.
	Propagation string `json:"propagation,omitempty"`
	Status      Status `json:"status"`
	// Declared is the value that an owner declares, if the object has another value. It is nil if no owner declares the entry any more.
	Declared            *string `json:"declared,omitempty"`
	DeclaredPropagation string  `json:"declaredPropagation,omitempty"`
	// Source is the object and the field that declare the entry.
	Source *Source `json:"source,omitempty"`
	// Rule is the rule by which the object inherits the entry, such as "MachineDeployment → MachineSet (rule 6)". docs/rules.md has all rules.
	Rule string `json:"rule,omitempty"`
	// Steps are the objects between the source and this object, from the top.
	Steps []string `json:"steps,omitempty"`
	// Managers are the field managers that own the entry in this object.
	Managers []string `json:"managers,omitempty"`
	// OwnedByHeirloom says that Heirloom is among the managers.
	OwnedByHeirloom bool `json:"ownedByHeirloom"`
	// Records are the annotations of a Node that list the entry as its Machine's. Record says that the entry is itself bookkeeping about
	// inherited entries.
	Records []string `json:"records,omitempty"`
	Record  bool     `json:"record,omitempty"`
	// Reason says for programs why the entry is absent or missing; Message says it in a sentence, with the advice.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`

	// Of is the name of the entry in the rules.
	Of inherit.Entry `json:"-"`
	// From is the place of the declaration, and Field the path in this object of the entry's map or list, or of the entry itself.
	From  inherit.Source `json:"-"`
	Field string         `json:"-"`
	// WholeList says that the managers own the list of the entry, and not the entry.
	WholeList bool `json:"-"`
}

// Waits reports whether a taint evicts Pods, and is missing because the Node waits for its turn, or for its Pods to leave.
func (e *Entry) Waits() bool { return inherit.Why(e.Reason).Waits() }

// Text formats an entry with this value as users write it, such as "taint gpu=true:NoSchedule (once)".
func Text(kind Kind, key, value, propagation string) string {
	effect := ""
	if kind == Taint || kind == TemplateTaint {
		key, effect, _ = strings.Cut(key, ":")
		effect = ":" + effect
	}
	if value != "" {
		key += "=" + cli.Flat(value)
	}
	if propagation == string(clusterv1.MachineTaintPropagationOnInitialization) {
		effect += " (once)"
	}
	return string(kind) + " " + key + effect
}

// Others returns the field managers of the entry other than Heirloom and Cluster API.
func (e *Entry) Others() []string {
	return slices.DeleteFunc(slices.Clone(e.Managers), func(manager string) bool {
		return manager == managedfields.Manager || manager == "manager" || strings.HasPrefix(manager, "capi-") || strings.HasPrefix(manager, "cluster-api-")
	})
}

// Source is an object and a field in it.
type Source struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Field     string `json:"field,omitempty"`
}

// SourceOf returns a source for programs; nil if it is unknown.
func SourceOf(s inherit.Source) *Source {
	if s.Object == nil {
		return nil
	}
	return &Source{Kind: s.Kind, Namespace: s.Object.GetNamespace(), Name: s.Object.GetName(), Field: s.Field}
}

// Is reports whether a user means the entry by this key. The key of a taint may be with or without its effect, and the name of a field may
// be from any version of the API.
func (e *Entry) Is(key string) bool {
	if e.Key == key {
		return true
	}
	switch e.Kind {
	case Taint, TemplateTaint:
		return strings.HasPrefix(e.Key, key+":")
	case Field, TemplateField:
		field := inherit.FieldOf(key)
		return strings.HasPrefix(e.Key, key+"[") || strings.HasSuffix(e.Key, "["+key+"]") ||
			field != inherit.ReadinessGates && field == inherit.FieldOf(e.Key)
	}
	return false
}

// Sort sorts entries by kind and key.
func Sort(entries []Entry) { slices.SortStableFunc(entries, Order) }

// Order compares entries for Sort.
func Order(a, b Entry) int {
	order := []Kind{Label, Annotation, Taint, Field, TemplateLabel, TemplateAnnotation, TemplateTaint, TemplateField}
	return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(a.Key, b.Key))
}
