// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// The columns of CSV and of the wide table, on which spreadsheets rely, and those of the narrow table.
const (
	wideColumns    = "namespace cluster kind pool nodes missing differs keys left-alone waiting unprotected admission error"
	narrowColumns  = "pool nodes wrong left-alone waiting unprotected admission"
	lackingColumns = "namespace cluster kind pool node lacks"
)

// records are the lines of a table, by column, and the columns of a wide one.
func (r *Report) records() (columns []string, all []map[string]any) {
	for _, l := range r.Lacking {
		all = append(all, map[string]any{
			"namespace": l.Namespace, "cluster": l.Cluster, "kind": l.Kind, "pool": l.Name, "node": l.Node, "lacks": fmt.Sprint(l.Lacks.Kind, " ", l.Lacks.Key),
		})
	}
	if len(r.Required) > 0 {
		return strings.Fields(lackingColumns), all
	}
	for _, row := range r.Rows {
		var keys []string
		for _, k := range row.Keys {
			keys = append(keys, k.String())
		}
		record := map[string]any{
			"namespace": row.Namespace, "cluster": row.Cluster, "kind": row.Kind, "pool": row.Name, "nodes": row.Nodes, "missing": row.Missing,
			"differs": row.Differs, "keys": strings.Join(keys, "; "), "left-alone": row.LeftAlone, "waiting": row.Waiting,
			"unprotected": row.Unprotected, "admission": row.Admission, "error": row.Error, "wrong": row.Missing + row.Differs,
		}
		if row.Error != "" && row.Nodes == 0 { // that is not known
			record["nodes"], record["waiting"], record["unprotected"] = "", "", ""
		}
		all = append(all, record)
	}
	return strings.Fields(wideColumns), all
}

// CSV writes one line for each row. Anyone may choose the name of a field manager, so no field begins with what a spreadsheet takes for
// a formula.
func (r *Report) CSV(w io.Writer) error {
	columns, records := r.records()
	lines := [][]string{columns}
	for _, record := range records {
		var line []string
		for _, column := range columns {
			field := fmt.Sprint(record[column])
			if strings.IndexAny(field, "=+-@\t") == 0 {
				field = "'" + field
			}
			line = append(line, field)
		}
		lines = append(lines, line)
	}
	return csv.NewWriter(w).WriteAll(lines)
}

// Table implements cli.Result. The narrow table has a line for each Cluster, and below it one for each pool.
func (r *Report) Table(wide bool) *metav1.Table {
	t := &metav1.Table{}
	columns, records := r.records()
	narrow := !wide && len(r.Required) == 0
	if narrow {
		columns = strings.Fields(narrowColumns)
	}
	for _, column := range columns {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: column, Type: "string"})
	}
	above := ""
	for i, record := range records {
		if cluster := fmt.Sprint(record["namespace"], "/", record["cluster"]); narrow && cluster != above {
			t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{cluster, "", "", "", "", "", record["admission"]}})
			above = cluster
		}
		if narrow && record["kind"] == "Cluster" {
			continue
		}
		if narrow {
			record["pool"], record["admission"] = "  "+r.Rows[i].title(), ""
		}
		var cells []any
		for _, column := range columns {
			cells = append(cells, record[column])
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
	}
	return t
}

func (p Pool) title() string {
	if p.Kind == "Node" {
		return "Nodes without a Machine"
	}
	return p.Name
}

// Sentences say to people what the narrow table only counts, and what could not be read.
func (r *Report) Sentences(wide bool) (all []string) {
	nodes := 0
	for _, row := range r.Rows {
		nodes += row.Nodes
		cluster := row.Namespace + "/" + row.Cluster
		for _, k := range row.Keys {
			if len(r.Required) == 0 && !wide {
				all = append(all, cluster+", "+row.title()+": "+k.String())
			}
		}
		if row.Error != "" {
			all = with(all, cluster+": "+row.Error)
		}
	}
	if len(r.Required) > 0 && len(r.Lacking) == 0 {
		all = append(all, fmt.Sprintf("No Node lacks a required key (%s).", cli.Count(nodes, "Node")))
	}
	return all
}
