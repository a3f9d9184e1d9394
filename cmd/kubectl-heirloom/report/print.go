// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// The columns of CSV and of the wide table, on which spreadsheets rely, and the columns of the narrow table.
const (
	wideColumns    = "namespace cluster kind pool nodes missing differs keys skipped waiting unprotected admission error"
	lackingColumns = "namespace cluster kind pool node lacks"
	narrowColumns  = "pool nodes wrong skipped waiting unprotected admission"
)

// lines returns the column names, and then the lines of CSV and of the wide table.
func (r *Report) lines() [][]string {
	if len(r.Required) > 0 {
		lines := [][]string{strings.Fields(lackingColumns)}
		for _, l := range r.Lacking {
			lines = append(lines, []string{l.Namespace, l.Cluster, l.Kind, l.Name, l.Node, string(l.Lacks.Kind) + " " + l.Lacks.Key})
		}
		return lines
	}
	lines := [][]string{strings.Fields(wideColumns)}
	for _, row := range r.Rows {
		var keys []string
		for _, k := range row.Keys {
			keys = append(keys, k.String())
		}
		lines = append(lines, []string{
			row.Namespace, row.Cluster, row.Kind, row.Name, row.count(row.Nodes), strconv.Itoa(row.Missing), strconv.Itoa(row.Differs), strings.Join(keys, "; "),
			strconv.Itoa(row.Skipped), row.count(row.Waiting), row.count(row.Unprotected), row.Admission, row.Error,
		})
	}
	return lines
}

// narrow returns a line for each Cluster, and below it a line for each pool.
func (r *Report) narrow() [][]string {
	lines, above := [][]string{strings.Fields(narrowColumns)}, ""
	for _, row := range r.Rows {
		if row.of() != above {
			above = row.of()
			lines = append(lines, []string{above, "", "", "", "", "", row.Admission})
		}
		if row.Kind != "Cluster" {
			lines = append(lines, []string{
				"  " + row.title(), row.count(row.Nodes), strconv.Itoa(row.Missing + row.Differs), strconv.Itoa(row.Skipped),
				row.count(row.Waiting), row.count(row.Unprotected), "",
			})
		}
	}
	return lines
}

// count returns a number of Nodes as text; empty if they could not be read.
func (r Row) count(n int) string {
	if r.Error != "" && r.Nodes == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func (p Pool) of() string { return p.Namespace + "/" + p.Cluster }

func (p Pool) title() string {
	if p.Kind == "Node" {
		return "Nodes without a Machine"
	}
	return p.Name
}

// CSV writes a line for each row. Anyone may choose the name of a field manager, so CSV escapes fields that a spreadsheet would take for a
// formula.
func (r *Report) CSV(w io.Writer) error {
	lines := r.lines()
	for _, line := range lines {
		for i, field := range line {
			if strings.IndexAny(field, "=+-@\t") == 0 {
				line[i] = "'" + field
			}
		}
	}
	return csv.NewWriter(w).WriteAll(lines)
}

// Table implements cli.Result.
func (r *Report) Table(wide bool) *metav1.Table {
	t, lines := &metav1.Table{}, r.lines()
	if !wide && len(r.Required) == 0 {
		lines = r.narrow()
	}
	t.ColumnDefinitions = cli.Columns(lines[0]...)
	for _, line := range lines[1:] {
		var cells []any
		for _, cell := range line {
			cells = append(cells, cell)
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
	}
	return t
}

// Sentences describes for people the entries that the narrow table only counts, and the errors.
func (r *Report) Sentences(wide bool) (all []string) {
	nodes, observed := 0, 0
	for _, row := range r.Rows {
		nodes, observed = nodes+row.Nodes, observed+row.Observed
		for _, k := range row.Keys {
			if len(r.Required) == 0 && !wide {
				all = append(all, row.of()+", "+row.title()+": "+k.String())
			}
		}
		if row.Error != "" {
			all = with(all, row.of()+": "+row.Error)
		}
	}
	if observed > 0 {
		all = append(all, cli.Count(observed, "object")+" would be written, but Heirloom only observes their Clusters.")
	}
	if len(r.Required) > 0 && len(r.Lacking) == 0 {
		all = append(all, "No Node lacks a required key ("+cli.Count(nodes, "Node")+").")
	}
	return all
}
