// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

// Severity says how bad a finding is.
type Severity string

// Errors will be refused, warnings do not have the intended effect, and notes are information.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// Rule describes a mistake in a manifest.
type Rule struct {
	ID   string // never changes, and is never used for another rule
	Name string // in a few words, for programs that show names
	Severity
	Finds string // a sentence about the objects that the rule finds
}

// The rules. HL008, HL010, HL011, HL013 and HL014 were notes about correct manifests.
var (
	refusedTaint        = Rule{"HL001", "refused-taint", Error, "A taint that Heirloom's webhook refuses: reserved, invalid, declared twice, or unreadable."}
	typedInPool         = Rule{"HL002", "typed-taint-in-machinepool", Error, "Typed taints in the template of a MachinePool, which Cluster API refuses."}
	typedWithoutGate    = Rule{"HL003", "typed-taint-without-gate", Error, "Typed taints, although Cluster API's gate `MachineTaintPropagation` is off according to the settings."}
	declaredTwice       = Rule{"HL004", "taint-declared-twice", Warning, "The same taint declared in two ways; one declaration has no effect."}
	neverInherited      = Rule{"HL005", "never-inherited", Warning, "A key in a template or a topology that no rule propagates, regardless of settings."}
	notForNodes         = Rule{"HL006", "not-for-nodes", Note, "A label or an annotation that reaches Machines but no Node, and the flag that would propagate it."}
	wrongPlace          = Rule{"HL007", "wrong-place", Warning, "An entry for Nodes in a place from which it reaches no Node, such as the object's own metadata."}
	listReplaced        = Rule{"HL009", "list-replaced", Warning, "A list of a topology that replaces the list of the ClusterClass, so that items are lost."}
	leftOut             = Rule{"HL012", "left-out", Warning, "An entry that an API server would refuse in the child, so that Heirloom leaves it out."}
	usedBySelector      = Rule{"HL015", "used-by-selector", Warning, "A label for Nodes that a selector uses, so that changes do not reach existing objects."}
	unreadableObject    = Rule{"HL016", "unreadable-object", Error, "An object with a field of the wrong type, such as a label that is a number."}
	unfilledTemplate    = Rule{"HL017", "unfilled-template", Note, "Variables without a value, so that a part could not be checked."}
	duplicateKey        = Rule{"HL018", "duplicate-key", Error, "A key that an object has twice, often because a line `---` is missing, or an object that a file has twice."}
	unknownKind         = Rule{"HL019", "unknown-kind", Error, "An object of `cluster.x-k8s.io` whose kind or version is unknown or missing, so that it was not checked."}
	namesNothing        = Rule{"HL020", "names-nothing", Warning, "An entry of `sync.heirloom.dev/labels` or `sync.heirloom.dev/annotations` that has no effect."}
	mapReplaced         = Rule{"HL021", "map-replaced", Warning, "A patch of a ClusterClass that replaces all labels or annotations of the control plane, so that declarations are lost."}
	gateForAutoscaler   = Rule{"HL024", "gate-for-autoscaler", Warning, "A start-up gate of an autoscaled pool whose taint cluster-autoscaler takes for permanent, unless its flags name the key."}
	registeredTwice     = Rule{"HL022", "registered-twice", Warning, "A label or a taint in a bootstrap configuration that the pool declares as well: leave it to the pool."}
	registeredOtherwise = Rule{"HL023", "registered-otherwise", Warning, "A label or a taint in a bootstrap configuration with another value or effect than the pool declares."}
	mistakenKey         = Rule{"HL025", "mistaken-key", Error, "A key of `heirloom.dev` or a subdomain that is unknown, in the wrong place, or has a value that it does not know."}
	unknownField        = Rule{"HL026", "unknown-field", Warning, "A field that the kind does not have, such as a mistyped name."}
)

// Rules returns all rules, by ID.
func Rules() []Rule {
	return []Rule{
		refusedTaint, typedInPool, typedWithoutGate, declaredTwice, neverInherited, notForNodes, wrongPlace, listReplaced, leftOut, usedBySelector,
		unreadableObject, unfilledTemplate, duplicateKey, unknownKind, namesNothing, mapReplaced, registeredTwice, registeredOtherwise, gateForAutoscaler, mistakenKey,
		unknownField,
	}
}

// Finding is a mistake that a rule has found.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Object   string   `json:"object,omitempty"` // "<kind> <namespace>/<name>"; empty if a file could not be read
	Field    string   `json:"field,omitempty"`
	File     string   `json:"file"`
	Line     int      `json:"line,omitempty"` // 0 if a kustomization renders the object
	Message  string   `json:"message"`
	Advice   string   `json:"advice,omitempty"` // how to correct the mistake
}

// Report is the answer of lint.
type Report struct {
	metav1.TypeMeta `json:",inline"`

	// Settings names the settings of the server by which lint judged the manifests.
	Settings string    `json:"settings"`
	Objects  int       `json:"objects"`
	Findings []Finding `json:"findings"`
}

// report sorts the findings, and removes duplicates: several objects may have the same finding.
func (l *linter) report(objects int) *Report {
	slices.SortFunc(l.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Field+a.text(), b.Field+b.text()))
	})
	return &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "LintReport"},
		Settings: cmp.Or(l.Origin, "the defaults"), Objects: objects, Findings: append([]Finding{}, slices.Compact(l.findings)...),
	}
}

// Count returns how many findings are of this severity.
func (r *Report) Count(of Severity) (n int) {
	for _, f := range r.Findings {
		if f.Severity == of {
			n++
		}
	}
	return n
}

// Text returns a line for each finding, in the format of compilers, so that editors find the place.
func (r *Report) Text(paint cli.Painter) string {
	styles, lines := map[Severity]cli.Style{Error: cli.Bad, Warning: cli.Warn, Note: cli.Dim}, []string{}
	for _, f := range r.Findings {
		lines = append(lines, fmt.Sprintf("%s: %s %s %s\n", f.place(), paint.Paint(styles[f.Severity], string(f.Severity)), f.Rule, f.text()))
	}
	return strings.Join(lines, "")
}

// place returns the file and, if it is known, the line.
func (f Finding) place() string {
	return strings.TrimSuffix(fmt.Sprintf("%s:%d", f.File, f.Line), ":0")
}

// text returns the object, the message and the advice.
func (f Finding) text() string {
	return strings.TrimPrefix(f.Object+": ", ": ") + strings.TrimSuffix(f.Message+". "+f.Advice, ". ")
}

// Summary counts the findings in a sentence, and names the settings.
func (r *Report) Summary() string {
	judged := "Checked with " + r.Settings + "."
	if r.Settings == "the defaults" {
		judged += " Use --values or --server-flags for the settings of your server."
	}
	return fmt.Sprintf("%s, %s and %s in %s. %s", cli.Count(r.Count(Error), "error"), cli.Count(r.Count(Warning), "warning"),
		cli.Count(r.Count(Note), "note"), cli.Count(r.Objects, "object"), judged)
}

// Table implements cli.Result.
func (r *Report) Table(bool) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: cli.Columns("File", "Severity", "Rule", "Object", "Message")}
	for _, f := range r.Findings {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{f.place(), string(f.Severity), f.Rule, f.Object, f.Message}})
	}
	return t
}

// sarif holds the fields of an object in SARIF. The levels of SARIF have the names of the severities.
type sarif map[string]any

// SARIF writes the report in the format of code scanning (https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html).
func (r *Report) SARIF(w io.Writer) error {
	const docs = "https://github.com/heirloom-dev/heirloom/blob/main/docs/kubectl.md#lint"
	rules, results := []sarif{}, []sarif{} // null is no valid list
	for _, rule := range Rules() {
		rules = append(rules, sarif{"id": rule.ID, "name": rule.Name, "shortDescription": sarif{"text": rule.Finds}, "helpUri": docs,
			"defaultConfiguration": sarif{"level": rule.Severity}})
	}
	for _, f := range r.Findings {
		uri := url.URL{Path: f.File} // relative, unless the path is absolute
		if path.IsAbs(f.File) {
			uri.Scheme = "file"
		}
		results = append(results, sarif{
			"ruleId": f.Rule, "ruleIndex": slices.IndexFunc(Rules(), func(rule Rule) bool { return rule.ID == f.Rule }),
			"level": f.Severity, "message": sarif{"text": f.text()},
			"locations": []sarif{{
				"physicalLocation": sarif{"artifactLocation": sarif{"uri": uri.String()}, "region": sarif{"startLine": max(1, f.Line)}},
				"logicalLocations": []sarif{{"fullyQualifiedName": cmp.Or(strings.TrimSpace(f.Object+" "+f.Field), f.File), "kind": "member"}},
			}},
			// The fingerprint of a finding stays the same if lines above it change.
			"partialFingerprints": sarif{"heirloomFinding/v1": fmt.Sprintf("%x", sha256.Sum256(
				[]byte(strings.Join([]string{f.Rule, f.File, f.Object, f.Field, f.Message}, "\x00"))))[:32]},
		})
	}
	driver := sarif{"name": "kubectl heirloom lint", "version": version.String(), "informationUri": docs, "rules": rules}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(sarif{"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []sarif{{"tool": sarif{"driver": driver}, "results": results}}})
}
