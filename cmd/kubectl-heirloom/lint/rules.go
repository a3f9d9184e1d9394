// SPDX-License-Identifier: Apache-2.0

package lint

import "fmt"

// Severity is how bad a finding is.
type Severity string

// The severities, the worst first.
const (
	// Error means that the object or a part of it will be refused.
	Error Severity = "error"
	// Warning means that something will not do what it says.
	Warning Severity = "warning"
	// Note is something to know.
	Note Severity = "note"
)

// Rule is something that can be wrong with a manifest.
type Rule struct {
	// ID never changes and is never used for another rule.
	ID string
	// Name is the rule in a few words, for programs that show names.
	Name     string
	Severity Severity
	// Finds is a sentence about the objects that the rule finds.
	Finds string
}

// The rules by name.
const (
	refusedTaint          = "HL001"
	typedInPool           = "HL002"
	typedWithoutGate      = "HL003"
	declaredTwice         = "HL004"
	neverInherited        = "HL005"
	notForNodes           = "HL006"
	wrongPlace            = "HL007"
	reachesNothing        = "HL008"
	listReplaced          = "HL009"
	valueReplaced         = "HL010"
	replacedTemplate      = "HL011"
	leftOut               = "HL012"
	restrictedLabel       = "HL013"
	inheritsNothing       = "HL014"
	usedBySelector        = "HL015"
	unreadableObject      = "HL016"
	unfilledTemplate      = "HL017"
	duplicateKey          = "HL018"
	unknownKind           = "HL019"
	docsOfRules           = "https://github.com/heirloom-dev/heirloom/blob/main/docs/kubectl.md#lint"
	additionalLabels      = "--additional-sync-machine-labels"
	additionalAnnotations = "--additional-sync-machine-annotations"
)

// Rules returns all rules, by ID.
func Rules() []Rule {
	return []Rule{
		{refusedTaint, "refused-taint", Error,
			"A taint that Heirloom's webhook refuses: reserved, invalid, declared twice in one list, or unreadable in an annotation."},
		{typedInPool, "typed-taint-in-machinepool", Error, "Typed taints in the template of a MachinePool, which Cluster API refuses."},
		{typedWithoutGate, "typed-taint-without-gate", Error,
			"Typed taints, although the settings say that Cluster API's gate `MachineTaintPropagation` is off."},
		{declaredTwice, "taint-declared-twice", Warning,
			"The same taint, typed and by annotation, or `always` and `initialize`: one of the two does nothing."},
		{neverInherited, "never-inherited", Warning, "A key in a template or a topology that no rule hands down, whatever the settings are."},
		{notForNodes, "not-for-nodes", Note, "A label or an annotation that reaches Machines and no Node, and the flag that would let it."},
		{wrongPlace, "wrong-place", Warning, "Something for Nodes in a place from which it reaches none, such as the object's own metadata."},
		{reachesNothing, "reaches-nothing", Note, "Any other label of a MachineDeployment's own metadata: it reaches nothing."},
		{listReplaced, "list-replaced", Warning,
			"A list of a topology that replaces that of the ClusterClass, so that taints or readiness gates of the class are lost."},
		{valueReplaced, "value-replaced", Note,
			"A label, annotation or field that Cluster and ClusterClass declare with different values: the Cluster's wins."},
		{replacedTemplate, "template-replaced", Note,
			"A label or annotation of a control plane's template that the ClusterClass or the topology replaces."},
		{leftOut, "left-out", Warning,
			"Something that an API server would refuse in the child, so that Heirloom leaves it out: invalid, negative or too large."},
		{restrictedLabel, "restricted-label", Note,
			"A label that a kubelet may not set, so that a new Node has it only after the first write by someone else."},
		{inheritsNothing, "inherits-nothing", Note, "An object that is paused, opted out, or without the label of the watch filter."},
		{usedBySelector, "used-by-selector", Warning, "A label for Nodes that a selector uses: a change of it does not reach what exists."},
		{unreadableObject, "unreadable-object", Error, "An object with a field of the wrong type, such as a label that is a number."},
		{unfilledTemplate, "unfilled-template", Note, "A template with variables that have no value yet, so that something could not be judged."},
		{duplicateKey, "duplicate-key", Error,
			"A key that an object has twice, often because a line `---` between two objects is missing: only the last counts."},
		{unknownKind, "unknown-kind", Error, "An object of `cluster.x-k8s.io` whose kind or version is not known, so that it was not judged."},
	}
}

func ruleOf(id string) Rule {
	for _, rule := range Rules() {
		if rule.ID == id {
			return rule
		}
	}
	panic(fmt.Sprintf("there is no rule %s", id))
}
