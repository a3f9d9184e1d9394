// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Settings are those of the server that the manifests are for.
type Settings struct {
	Policy inherit.Policy
	// Known says that the settings were given. Otherwise they are the defaults, and the report says so.
	Known bool
	// Origin says where they come from.
	Origin string
	// Namespace is that of objects that name none. If it is empty, that is the one that all others name.
	Namespace string
}

// defaults says by which settings the manifests are judged if none are given.
const defaults = "the defaults"

// Finding is something that a rule has found.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	// Object is "<kind> <namespace>/<name>", Field the path of the field, both empty if a file could not be read.
	Object string `json:"object,omitempty"`
	Field  string `json:"field,omitempty"`
	File   string `json:"file"`
	// Line is 0 if the object is in no file as it is, as after kustomize.
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
	// Advice says what to do.
	Advice string `json:"advice,omitempty"`
}

// Report is what was found.
type Report struct {
	metav1.TypeMeta `json:",inline"`

	// Settings says which settings of the server the manifests were judged by.
	Settings string    `json:"settings"`
	Objects  int       `json:"objects"`
	Findings []Finding `json:"findings"`
}

// linter judges one set of manifests.
type linter struct {
	Settings
	world    *world
	subjects []*subject
	findings []Finding
}

// Lint judges the objects together: a Cluster with its ClusterClass, and a MachineDeployment with the Cluster that manages it.
func Lint(set *manifest.Set, by Settings) (*Report, error) {
	by.Policy.PaceEviction = false // nothing evicts anybody here
	l := &linter{Settings: by, world: newWorld()}
	for _, note := range set.Notes {
		if !strings.Contains(note.Text, clusterv1.GroupVersion.Group) {
			continue // there is nothing of Cluster API in it
		}
		l.findings = append(l.findings, Finding{
			Rule: unfilledTemplate, Severity: ruleOf(unfilledTemplate).Severity, File: note.File, Line: note.Line, Message: note.Message,
		})
	}
	for _, object := range set.Objects {
		if s := l.subjectOf(object); s != nil {
			l.subjects = append(l.subjects, s)
		}
	}
	l.placeInNamespace()
	for _, s := range l.subjects {
		l.world.add(s)
	}
	for _, s := range l.subjects {
		l.world.add(s) // of several with the same name, each has its turn
		l.itself(s)
		if err := l.declares(context.Background(), s); err != nil {
			return nil, fmt.Errorf("%s:%d: %s: %w", s.File, s.Line(""), s.name(), err)
		}
		l.overridden(s)
		l.templateReplaced(s)
		l.world.forget()
	}
	return l.report(), nil
}

// placeInNamespace gives a namespace to the objects that name none: that of the settings, or else the one that all others name.
func (l *linter) placeInNamespace() {
	named := sets.New[string]()
	for _, s := range l.subjects {
		named.Insert(s.GetNamespace())
	}
	namespace := l.Namespace
	if others := named.Delete("").UnsortedList(); namespace == "" && len(others) == 1 {
		namespace = others[0]
	}
	for _, s := range l.subjects {
		if s.GetNamespace() == "" {
			s.SetNamespace(namespace)
			if s.chained != nil {
				s.chained.SetNamespace(namespace)
			}
		}
	}
}

// found adds a finding of a rule about a field of an object.
func (l *linter) found(rule string, s *subject, field, advice, format string, args ...any) {
	l.findings = append(l.findings, Finding{
		Rule: rule, Severity: ruleOf(rule).Severity, Object: s.name(), Field: field, File: s.File, Line: s.Line(field),
		Message: fmt.Sprintf(format, args...), Advice: advice,
	})
}

// report sorts the findings. The same may have been found below several objects.
func (l *linter) report() *Report {
	slices.SortStableFunc(l.findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Object, b.Object),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message),
		)
	})
	settings := defaults
	if l.Known {
		settings = l.Origin
	}
	return &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "LintReport"},
		Settings: settings, Objects: len(l.subjects), Findings: append([]Finding{}, slices.Compact(l.findings)...),
	}
}

// Worst returns the severity of the worst finding; empty if there is none.
func (r *Report) Worst() Severity {
	for _, severity := range []Severity{Error, Warning, Note} {
		if slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == severity }) {
			return severity
		}
	}
	return ""
}
