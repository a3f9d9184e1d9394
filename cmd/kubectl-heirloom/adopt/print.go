// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
)

// Table implements cli.Result.
func (a *Adoption) Table(wide bool) *metav1.Table {
	t, columns := &metav1.Table{}, []string{"Pool", "Entry", "Nodes", "Set by", "Status", "Registered by", "Declare in"}
	last := len(columns)
	if !wide {
		last = 5
	}
	for _, name := range columns[:last] {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, p := range a.Pools {
		for i := range p.Entries {
			e := &p.Entries[i]
			style := map[State]cli.Style{Adopt: cli.Good, NotPropagated: cli.Warn, DeclaredTwice: cli.Warn}[e.State]
			declares := ""
			if p.Declares != nil && e.State == Adopt {
				declares = p.Declares.Kind + "/" + p.Declares.Name + " (" + p.Declares.Field + ")"
			}
			t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{
				p.Name, e.text(), fmt.Sprintf("%d of %d", e.Nodes, p.Nodes), e.setBy(), cli.Cell{Style: style, Text: e.State.String()}, e.registered(), declares,
			}[:last]})
		}
	}
	return t
}

func (e *Entry) text() string { return compare.Text(e.Kind, e.Key, e.Value, "") }

func (e *Entry) setBy() string {
	switch {
	case len(e.SetBy) > 0:
		return strings.Join(e.SetBy, ", ")
	case e.State == DeclaredTwice || e.State == OnNoNode:
		return ""
	}
	return "unknown"
}

func (e *Entry) registered() string {
	var all []string
	for _, by := range e.RegisteredBy {
		all = append(all, by.Kind+"/"+by.Name+" ("+by.Field+")")
	}
	return strings.Join(all, ", ")
}

// Commands returns the patches as commands for a shell. A line of YAML that ends the text early cannot come from outside: every value is
// below metadata or spec.
func (a *Adoption) Commands() (string, error) {
	var all []string
	for i := range a.Patches {
		p := &a.Patches[i]
		raw, err := yaml.Marshal(p.Patch)
		if err != nil {
			return "", fmt.Errorf("writing the patch of %s %s: %w", p.Kind, p.Name, err)
		}
		gvk := p.Object().GroupVersionKind()
		all = append(all, fmt.Sprintf("kubectl patch %s.%s.%s %s --namespace=%s --type=merge --patch-file=/dev/stdin <<'END'\n%sEND\n",
			strings.ToLower(p.Kind), gvk.Version, gvk.Group, p.Name, p.Namespace, raw))
	}
	return strings.Join(all, ""), nil
}

// Sentences describes for people the parts that the table does not have.
func (a *Adoption) Sentences() (all []string) {
	for _, p := range a.Pools {
		for i := range p.Entries {
			if e := &p.Entries[i]; e.Message != "" {
				all = append(all, p.Name+", "+e.text()+": "+e.Message)
			}
		}
		if p.Error != "" {
			all = append(all, p.Name+": not everything could be read: "+p.Error)
		}
	}
	if commands, err := a.Commands(); err == nil && commands != "" {
		all = append(all, "", "Declare the rest in your manifests, or with these commands:", "", strings.TrimSuffix(commands, "\n"), "")
	} else if !a.Undeclared() {
		all = append(all, "All labels and taints that all Nodes of a pool have are declared.")
	}
	switch {
	case a.Difference == nil:
	case len(a.NodeChanges) == 0:
		all = append(all, "Then nothing changes on any Node, and no Machine is replaced: Heirloom records the entries as inherited.")
	default:
		all = append(all, fmt.Sprintf("Then %s on Nodes would change, and no Machine is replaced: %s",
			cli.Count(len(a.NodeChanges), "label or taint"), cli.Some(a.NodeChanges, 5)))
	}
	all = append(all, a.Advice...)
	if a.Difference != nil {
		all = append(all, notes(a.Difference.Notes)...)
	}
	return append(all, notes(a.Notes)...)
}

func notes(all []string) (said []string) {
	for _, note := range all {
		said = append(said, "Note: "+note)
	}
	return said
}
