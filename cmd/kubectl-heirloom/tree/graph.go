// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// The formats of graphs.
const (
	Mermaid = "mermaid"
	Dot     = "dot"
)

// Draw writes the forest as a graph.
func (f *Forest) Draw(w io.Writer, format string) error {
	g := graph{}
	for _, top := range f.lines() {
		g.add(top)
	}
	text := g.mermaid()
	if format == Dot {
		text = g.dot()
	}
	_, err := io.WriteString(w, text)
	return err
}

// graph is what a graph consists of.
type graph struct {
	nodes []box
	edges [][2]int
}

// box is an object of a graph: the lines of its text, and its state.
type box struct {
	lines []string
	state State
}

// add adds a line with what is below it, and returns its number.
func (g *graph) add(l *line) int {
	n := len(g.nodes)
	text := append([]string{l.title()}, l.enters()...)
	if l.State != OK || len(l.LeftOut) > 0 {
		text = append(text, l.states(false)...)
	}
	g.nodes = append(g.nodes, box{text, l.State})
	for _, child := range l.children {
		g.edges = append(g.edges, [2]int{n, g.add(child)})
	}
	return n
}

// mermaid writes the graph in Mermaid's language.
func (g *graph) mermaid() string {
	var s strings.Builder
	s.WriteString("flowchart TD\n")
	for n, box := range g.nodes {
		lines := make([]string, 0, len(box.lines))
		for _, text := range box.lines {
			lines = append(lines, escapeMermaid(text))
		}
		fmt.Fprintf(&s, "  n%d[\"%s\"]", n, strings.Join(lines, "<br/>"))
		if box.state == Drifted || box.state == Unknown || box.state == LeftAlone || box.state == Stranger {
			fmt.Fprintf(&s, ":::%s", box.state)
		}
		s.WriteString("\n")
	}
	for _, edge := range g.edges {
		fmt.Fprintf(&s, "  n%d --> n%d\n", edge[0], edge[1])
	}
	fmt.Fprintf(&s, "  classDef %s,%s stroke:#cf222e,stroke-width:3px\n", Drifted, Unknown)
	fmt.Fprintf(&s, "  classDef %s,%s stroke-dasharray:4 4\n", LeftAlone, Stranger)
	return s.String()
}

// escapeMermaid writes everything that could mean something to Mermaid or to HTML by its number.
func escapeMermaid(text string) string {
	var s strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsControl(r):
			s.WriteRune(' ')
		case r > unicode.MaxASCII, unicode.IsLetter(r), unicode.IsDigit(r), strings.ContainsRune(" ./:_=+,!?()-", r):
			s.WriteRune(r)
		default:
			fmt.Fprintf(&s, "#%d;", r)
		}
	}
	return s.String()
}

// dot writes the graph in Graphviz's language.
func (g *graph) dot() string {
	var s strings.Builder
	s.WriteString("digraph heirloom {\n  node [shape=box, fontname=\"monospace\"];\n")
	for n, box := range g.nodes {
		var text strings.Builder
		for _, line := range box.lines {
			text.WriteString(escapeDot(line) + `\l`)
		}
		fmt.Fprintf(&s, "  n%d [label=\"%s\"", n, text.String())
		switch box.state {
		case Drifted, Unknown:
			s.WriteString(`, color="#cf222e", penwidth=3`)
		case LeftAlone, Stranger:
			s.WriteString(`, style=dashed`)
		}
		s.WriteString("];\n")
	}
	for _, edge := range g.edges {
		fmt.Fprintf(&s, "  n%d -> n%d;\n", edge[0], edge[1])
	}
	s.WriteString("}\n")
	return s.String()
}

// escapeDot writes text for a quoted string of Graphviz, in which a backslash and an ampersand have a meaning of their own.
func escapeDot(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "&", "&amp;").Replace(text)
}
