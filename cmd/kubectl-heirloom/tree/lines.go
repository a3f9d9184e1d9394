// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// view is the layout of a forest for people. all shows each object instead of groups of equal objects; wide adds fields and field managers.
type view struct {
	all, wide bool
	table     *metav1.Table
}

// line is the line of an item, or of several equal items. The details are below it.
type line struct {
	*Item
	names    []string
	details  []string
	children []*line
}

// line returns the line of an item with its children. Equal siblings that may be many share a line: Machines, Nodes, external objects, and
// MachineSets without Machines.
func (v view) line(i *Item) *line {
	l, groups := &line{Item: i, names: []string{i.Name}, details: v.details(i)}, map[string]*line{}
	for _, item := range i.Children {
		if !v.all && item.External && item.State != Drifted && item.State != Unknown {
			continue
		}
		child := v.line(item)
		numerous := item.Kind == "Machine" || item.Kind == "Node" || item.External || item.Kind == "MachineSet" && len(item.Children) == 0
		if first := groups[child.like()]; first != nil && numerous && !v.all {
			first.join(child)
			continue
		}
		groups[child.like()] = child
		l.children = append(l.children, child)
	}
	return l
}

// like returns the same text for lines that differ only in names and values.
func (l *line) like() string {
	words := []string{l.Kind, string(l.State)}
	for _, detail := range l.details {
		words = append(words, withoutValue(detail))
	}
	for _, child := range l.children {
		words = append(words, child.like())
	}
	return fmt.Sprintf("%q", words)
}

func withoutValue(detail string) string {
	detail, _, _ = strings.Cut(detail, "=")
	return detail
}

// join adds an equal line to this line.
func (l *line) join(other *line) {
	l.names = append(l.names, other.names...)
	for i, detail := range l.details {
		if detail != other.details[i] {
			l.details[i] = withoutValue(detail) + "=…"
		}
	}
	for i, child := range l.children {
		child.join(other.children[i])
	}
}

// details returns the texts below an object.
func (v view) details(i *Item) (all []string) {
	for _, d := range i.Declares {
		text := "+ " + compare.Text(d.Kind, d.Key, d.Value, d.Propagation)
		if len(d.For) > 0 {
			text += " for " + few(d.For)
		}
		if v.wide {
			text += " (" + strings.Join(d.Fields, ", ") + ")"
		}
		all = append(all, text)
	}
	for _, e := range i.Entries {
		all = append(all, v.wrong(e))
	}
	switch {
	case i.Error != "":
		all = append(all, "? "+i.Error)
	case i.State == Stranger:
		all = append(all, "? it inherits nothing: "+string(inherit.IsNoMachine)+". Compare the spec.providerID of the Node and "+
			"the Machines (kubectl get machines -o wide), and delete the Node if its machine is gone.")
	case i.Skipped != "":
		all = append(all, "skipped: "+i.Skipped)
	}
	for _, problem := range i.LeftOut {
		all = append(all, "left out: "+problem)
	}
	return all
}

// wrong says how an entry is missing or differs. Equal objects share the text before the value.
func (v view) wrong(e compare.Entry) string {
	text, by := fmt.Sprintf("! %s: %s", strings.ToLower(string(e.Status)), compare.Text(e.Kind, e.Key, e.Value, "")), ""
	if v.wide && e.Source != nil {
		by = " by " + e.From.String()
	}
	if e.Waits() {
		text = "~ waits for its turn: " + compare.Text(e.Kind, e.Key, e.Value, "")
	}
	switch {
	case e.Status == compare.Differs && e.Declared == nil:
		text += ", no longer declared"
	case e.Status == compare.Differs:
		text += fmt.Sprintf(", declared %q", strings.TrimSpace(cli.Flat(*e.Declared)+" "+e.DeclaredPropagation)) + by
	case by != "":
		text += ", declared" + by
	}
	if v.wide && len(e.Managers) > 0 {
		text += ", set by " + strings.Join(e.Managers, ", ")
	}
	return text
}

// title names the object, or the objects.
func (l *line) title() string {
	title := l.Kind + "/" + l.Name
	switch {
	case len(l.names) > 1:
		title = cli.Count(len(l.names), l.Kind) + ": " + few(l.names)
	case l.Kind == "Cluster" || l.Kind == "ClusterClass":
		title = l.Kind + " " + l.Namespace + "/" + l.Name // the objects below have the same namespace
	}
	if l.State == OK {
		title += "  ok"
	}
	return title
}

// few returns the first of some names.
func few(names []string) string {
	if len(names) > 3 {
		names = append(slices.Clone(names[:2]), "…")
	}
	return strings.Join(names, ", ")
}

// Table implements cli.Result. It has one column, because the details of an object are longer than any name.
func (f *Forest) Table(wide bool) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: cli.Columns("Name")}
	v := view{f.ShowAll, wide, table}
	for _, top := range f.Trees {
		v.add(v.line(top), "", "", "")
	}
	return table
}

// add adds a line with its children. before and twig precede its title, and aside precedes its details and its children.
func (v view) add(l *line, before, aside, twig string) {
	stem := aside + "    "
	if len(l.children) > 0 {
		stem = aside + "│   "
	}
	v.row(before+twig, l.title())
	for _, detail := range l.details {
		v.row(stem, detail)
	}
	for i, child := range l.children {
		if i == len(l.children)-1 {
			v.add(child, aside, aside+"  ", "└─")
		} else {
			v.add(child, aside, aside+"│ ", "├─")
		}
	}
}

// row adds a text.
func (v view) row(stem, text string) {
	style := map[byte]cli.Style{'!': cli.Bad, '?': cli.Bad, '~': cli.Warn, 'l': cli.Dim, 's': cli.Dim}[text[0]]
	v.table.Rows = append(v.table.Rows, metav1.TableRow{Cells: []any{cli.Cell{Style: style, Text: stem + text}}})
}
