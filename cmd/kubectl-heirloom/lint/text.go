// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// Text writes a line for each finding, as compilers do, so that editors find the place.
func (r *Report) Text(w io.Writer, paint cli.Painter) error {
	for _, f := range r.Findings {
		about, advice := "", ""
		if f.Object != "" {
			about = f.Object + ": "
		}
		if f.Advice != "" {
			advice = ". " + f.Advice
		}
		if _, err := fmt.Fprintf(w, "%s: %s %s %s%s%s\n", f.place(), paint.Paint(f.style(), string(f.Severity)), f.Rule, about, f.Message,
			advice); err != nil {
			return err
		}
	}
	return nil
}

// place is the file and, if there is one, the line.
func (f Finding) place() string {
	if f.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d", f.File, f.Line)
}

func (f Finding) style() cli.Style {
	switch f.Severity {
	case Error:
		return cli.Bad
	case Warning:
		return cli.Warn
	default:
		return cli.Dim
	}
}

// Summary says in a sentence what was judged and by what.
func (r *Report) Summary() string {
	count := map[Severity]int{}
	for _, f := range r.Findings {
		count[f.Severity]++
	}
	judged := "Judged by " + r.Settings + "."
	if r.Settings == defaults {
		judged += " --values or --server-flags give the settings of your server."
	}
	return fmt.Sprintf("%s, %s and %s in %s. %s", cli.Count(count[Error], "error"), cli.Count(count[Warning], "warning"),
		cli.Count(count[Note], "note"), cli.Count(r.Objects, "object"), judged)
}

// Table implements cli.Result.
func (r *Report) Table(wide bool) *metav1.Table {
	t := &metav1.Table{}
	names := []string{"File", "Severity", "Rule", "Object", "Message"}
	if wide {
		names = append(names, "Field", "Advice")
	}
	for _, name := range names {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, f := range r.Findings {
		cells := []any{f.place(), string(f.Severity), f.Rule, f.Object, f.Message}
		if wide {
			cells = append(cells, f.Field, f.Advice)
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
	}
	return t
}
