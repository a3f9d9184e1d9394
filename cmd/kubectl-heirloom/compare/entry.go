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

// Status says whether an entry is as it should be. Every command uses these words.
type Status string

const (
	// AsDeclared entries are inherited, and as an owner declares them.
	AsDeclared Status = "asDeclared"
	// Differs means that an owner declares another value, or nothing any more.
	Differs Status = "differs"
	// Missing entries are inherited, and not there yet or not there any more.
	Missing Status = "missing"
	// Absent entries are declared further up, and the object does not inherit them. The entry's reason says why.
	Absent Status = "absent"
	// SetHere entries were set on the object itself, or are declared there for others.
	SetHere Status = "setHere"
)

// String is the status as people read it.
func (s Status) String() string {
	switch s {
	case AsDeclared:
		return "as declared"
	case SetHere:
		return "set here"
	}
	return string(s)
}

// Wrong reports whether the next write of Heirloom changes the entry.
func (s Status) Wrong() bool { return s == Missing || s == Differs }

// Entry is one label, annotation, taint or field of an object, with what the object has and what it should have.
type Entry struct {
	Kind Kind `json:"kind"`
	// Key is "<key>:<effect>" for a taint, and "readinessGates[<type>]" for a readiness gate.
	Key string `json:"key"`
	// Value is what the object has; of an entry that is missing or absent, what is declared.
	Value string `json:"value"`
	// Propagation is that of a Machine's taint.
	Propagation string `json:"propagation,omitempty"`
	Status      Status `json:"status"`
	// Declared is what an owner declares, if the object has something else. It is nil if no owner declares the entry any more.
	Declared            *string `json:"declared,omitempty"`
	DeclaredPropagation string  `json:"declaredPropagation,omitempty"`
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
	// Records are the annotations of a Node that list it as its Machine's. Record says that it is itself bookkeeping about what the Node
	// inherits.
	Records []string `json:"records,omitempty"`
	Record  bool     `json:"record,omitempty"`
	// Reason is why it is absent or missing, for programs; Message says it in a sentence, with what to do.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`

	// Of is the entry as the rules name it.
	Of inherit.Entry `json:"-"`
	// From is where it is declared, and Field the path in this object of its map or list, or of itself.
	From  inherit.Source `json:"-"`
	Field string         `json:"-"`
	// WholeList says that the managers own the list that the entry is in, and not the entry.
	WholeList bool `json:"-"`
}

// Waits reports whether a taint evicts Pods, and is missing because the Node waits for its turn, or for its Pods to leave.
func (e *Entry) Waits() bool { return inherit.Why(e.Reason).Waits() }

// Text is an entry with this value as people write it, such as "taint gpu=true:NoSchedule (once)".
func Text(kind Kind, key, value, propagation string) string {
	effect := ""
	if kind == Taint || kind == TemplateTaint {
		key, effect, _ = strings.Cut(key, ":")
		effect = ":" + effect
	}
	if value != "" {
		key += "=" + cli.Shorten(value)
	}
	if propagation == string(clusterv1.MachineTaintPropagationOnInitialization) {
		effect += " (once)"
	}
	return string(kind) + " " + key + effect
}

// Others are the field managers that own the entry and are neither Heirloom nor Cluster API.
func (e *Entry) Others() []string {
	return slices.DeleteFunc(slices.Clone(e.Managers), func(manager string) bool {
		return manager == managedfields.Manager || manager == "manager" || strings.HasPrefix(manager, "capi-") || strings.HasPrefix(manager, "cluster-api-")
	})
}

// Source is an object, and a field in it.
type Source struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Field     string `json:"field,omitempty"`
}

// SourceOf returns a source for programs; nil if it is not known.
func SourceOf(s inherit.Source) *Source {
	if s.Object == nil {
		return nil
	}
	return &Source{Kind: s.Kind, Namespace: s.Object.GetNamespace(), Name: s.Object.GetName(), Field: s.Field}
}

// Is reports whether a user means the entry by this key. A taint's key may have its effect or not, and a field the name of any version
// of the API.
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

// Order is that of Sort.
func Order(a, b Entry) int {
	order := []Kind{Label, Annotation, Taint, Field, TemplateLabel, TemplateAnnotation, TemplateTaint, TemplateField}
	return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(a.Key, b.Key))
}
