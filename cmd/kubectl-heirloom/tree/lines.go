// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"slices"
	"strings"
)

// line is an item as people see it, or several equal ones.
type line struct {
	*Item
	names    []string
	children []*line
}

// lines are the trees as people see them.
func (f *Forest) lines() []*line {
	all := make([]*line, 0, len(f.Trees))
	for _, top := range f.Trees {
		all = append(all, f.View.line(top))
	}
	return all
}

// line shows an item with what is below it.
func (v View) line(i *Item) *line {
	l := &line{Item: i, names: []string{i.Name}}
	for _, child := range i.Children {
		if v.ShowAll || !child.External || child.State == Drifted || child.State == Unknown {
			l.children = append(l.children, v.line(child))
		}
	}
	if !v.ShowAll {
		l.children = grouped(l.children)
	}
	return l
}

// grouped puts equal siblings into one line, where the first of them is.
func grouped(all []*line) []*line {
	var groups []*line
	of := map[string]*line{}
	for _, one := range all {
		if !one.numerous() {
			groups = append(groups, one)
			continue
		}
		like := one.signature()
		if first := of[like]; first != nil {
			first.join(one)
			continue
		}
		of[like] = one
		groups = append(groups, one)
	}
	return groups
}

// numerous reports whether a Cluster may have many objects like this one: Machines with what belongs to them, and MachineSets that
// have none any more.
func (l *line) numerous() bool {
	return l.Kind == machineKind || l.Kind == nodeKind || l.External || l.Kind == machineSetKind && len(l.children) == 0
}

// signature is the same for lines that differ only in names and values.
func (l *line) signature() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%q %q %q %q", l.Kind, l.State, l.LeftAlone, l.Error)
	for _, e := range l.Enters {
		fmt.Fprintf(&s, " +%q %q", e.Kind, e.Key)
	}
	for _, d := range l.Drift {
		fmt.Fprintf(&s, " !%q %q %q", d.Kind, d.Key, d.Is)
	}
	fmt.Fprintf(&s, " ?%q", l.LeftOut)
	for _, child := range l.children {
		fmt.Fprintf(&s, " (%s)", child.signature())
	}
	return s.String()
}

// join adds an equal line to this one.
func (l *line) join(other *line) {
	l.names = append(l.names, other.names...)
	item := *l.Item
	item.Enters = slices.Clone(item.Enters)
	for i := range item.Enters {
		if item.Enters[i].Value != other.Enters[i].Value {
			item.Enters[i].Value = "…"
		}
	}
	item.Drift = slices.Clone(item.Drift)
	for i := range item.Drift {
		if item.Drift[i].DeclaredBy != other.Drift[i].DeclaredBy {
			item.Drift[i].DeclaredBy = ""
		}
	}
	l.Item = &item
	for i, child := range l.children {
		child.join(other.children[i])
	}
}

// title names the object, or the objects.
func (l *line) title() string {
	if len(l.names) == 1 {
		return l.Kind + "/" + l.names[0]
	}
	return fmt.Sprintf("%d %ss: %s", len(l.names), l.Kind, few(l.names))
}

// few are the first of some names.
func few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most-1], ", ") + ", …"
}

// enters are the words for what enters at the object.
func (l *line) enters() []string {
	var all []string
	for _, e := range l.Enters {
		text := "+" + e.String()
		if len(e.For) > 0 {
			text += " for " + few(e.For)
		}
		all = append(all, text)
	}
	return all
}

// mostSaid is how many differences are told one by one. A program gets all of them.
const mostSaid = 10

// states are the words for the state of the object, with more about each difference if wanted.
func (l *line) states(wide bool) []string {
	switch l.State {
	case Unknown:
		return []string{"? " + l.Error}
	case Stranger:
		return []string{"? " + l.LeftAlone}
	case LeftAlone:
		return []string{"left alone: " + l.LeftAlone}
	case Declares:
		return nil
	}
	var all []string
	if len(l.Drift) > 1 {
		all = append(all, fmt.Sprintf("! %d drifted:", len(l.Drift)))
	}
	for n, d := range l.Drift {
		if n == mostSaid {
			all = append(all, fmt.Sprintf("! %d more", len(l.Drift)-n))
			break
		}
		all = append(all, d.words(wide))
	}
	for _, problem := range l.LeftOut {
		if !wide {
			problem = cut(problem)
		}
		all = append(all, "left out: "+problem)
	}
	if len(l.Drift) == 0 {
		all = append([]string{"ok"}, all...)
	}
	return all
}

// cut shortens a sentence for the narrow table.
func cut(s string) string {
	const most = 100
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return s
}

func (d Drift) words(wide bool) string {
	words := fmt.Sprintf("! %s %s %s", d.Kind, d.Key, d.Is)
	if d.Is == Waiting {
		words = fmt.Sprintf("~ %s %s waits for its turn", d.Kind, d.Key)
	}
	if wide && d.DeclaredBy != "" {
		words += ", declared by " + d.DeclaredBy
	}
	return words
}
