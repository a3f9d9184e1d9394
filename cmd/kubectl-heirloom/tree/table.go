// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// Table implements cli.Result. Each entry that enters and each difference has a row of its own.
func (f *Forest) Table(wide bool) *metav1.Table {
	t := &table{View: f.View, wide: wide, Table: &metav1.Table{}}
	names := []string{"Name", "Enters", "State"}
	if wide {
		names = []string{"Name", "Enters", "Field", "State"}
	}
	if f.View.Namespaces {
		names = append([]string{"Namespace"}, names...)
	}
	for _, name := range names {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, top := range f.lines() {
		t.add(top, "", "", "")
	}
	return t.Table
}

// table is a table that is being made.
type table struct {
	*metav1.Table
	View
	wide bool
}

// add adds a line with what is below it. before is drawn in front of its name, and beside in front of its further rows and of its
// children.
func (t *table) add(l *line, before, beside, twig string) {
	enters, states := l.enters(), l.states(t.wide)
	stem := "  "
	if len(l.children) > 0 {
		stem = "│ "
	}
	for i := range max(1, len(enters), len(states)) {
		name := strings.TrimRight(beside+stem, " ")
		if i == 0 {
			name = before + twig + l.title()
		}
		t.row(l, i == 0, name, i, enters, states)
	}
	for i, child := range l.children {
		if i == len(l.children)-1 {
			t.add(child, beside, beside+"  ", "└─")
		} else {
			t.add(child, beside, beside+"│ ", "├─")
		}
	}
}

func (t *table) row(l *line, first bool, name string, i int, enters, states []string) {
	var cells []any
	if t.Namespaces {
		namespace := ""
		if first {
			namespace = l.Namespace
		}
		cells = append(cells, namespace)
	}
	cells = append(cells, name, nth(enters, i))
	if t.wide {
		field := ""
		if i < len(l.Enters) {
			field = few(l.Enters[i].Fields)
		}
		cells = append(cells, field)
	}
	t.Rows = append(t.Rows, metav1.TableRow{Cells: append(cells, cli.Cell{Style: l.State.style(), Text: nth(states, i)})})
}

func nth(all []string, i int) string {
	if i < len(all) {
		return all[i]
	}
	return ""
}

// style is how a state stands out.
func (s State) style() cli.Style {
	switch s {
	case OK:
		return cli.Good
	case Drifted, Unknown:
		return cli.Bad
	case Stranger:
		return cli.Warn
	}
	return cli.Dim
}
