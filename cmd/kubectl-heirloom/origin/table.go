// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// Table implements cli.Result.
func (e *Explanation) Table(wide bool) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: columns(wide)}
	for _, entry := range e.Entries {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: entry.cells(wide)})
	}
	return t
}

// Table implements cli.Result.
func (l *List) Table(wide bool) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: append([]metav1.TableColumnDefinition{column("Object")}, columns(wide)...)}
	for _, e := range l.Items {
		for _, entry := range e.Entries {
			t.Rows = append(t.Rows, metav1.TableRow{Cells: append([]any{e.Object}, entry.cells(wide)...)})
		}
	}
	return t
}

func columns(wide bool) []metav1.TableColumnDefinition {
	names := []string{"Kind", "Key", "Value", "Status", "From"}
	if wide {
		names = append(names, "Rule", "Managers", "Steps")
	}
	all := make([]metav1.TableColumnDefinition, 0, len(names))
	for _, name := range names {
		all = append(all, column(name))
	}
	return all
}

func column(name string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string"}
}

// cells are those of a row.
func (e *Entry) cells(wide bool) []any {
	from := e.From
	if e.Status == Own {
		from = strings.TrimPrefix(from, "set here ") // the status says it
	}
	if e.OwnedByHeirloom && e.Status == AsDeclared {
		from += " (owned by heirloom)"
	}
	if e.Reason != "" && e.Reason != string(notYet) { // the status says it
		from += " (" + e.Reason + ")"
	}
	text := e.Value
	if e.Propagation != "" && e.Propagation != "Always" {
		text = strings.TrimSpace(text + " (" + e.Propagation + ")")
	}
	cells := []any{string(e.Kind), e.Key, cli.Shorten(text), cli.Cell{Style: e.Status.style(), Text: e.Status.words()}, from}
	if !wide {
		return cells
	}
	return append(cells, orNone(e.Rule), orNone(strings.Join(append(e.Managers, e.Records...), ", ")), orNone(strings.Join(e.Steps, " → ")))
}

// words are what people read.
func (s Status) words() string {
	switch s {
	case AsDeclared:
		return "as declared"
	case Own:
		return "set here"
	}
	return string(s)
}

func (s Status) style() cli.Style {
	switch s {
	case Missing, Differs:
		return cli.Bad
	case Absent:
		return cli.Warn
	}
	return ""
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}
