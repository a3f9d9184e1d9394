// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"regexp"
	"strings"

	"github.com/heirloom-dev/heirloom/test/markdown"
)

// page is a Markdown page with blocks of a terminal:
//
//	```console
//	$ kubectl heirloom version
//	v0.1.0
//	```
type page struct {
	// lines are the lines of the page in order, without the output of its commands.
	lines    []string
	commands []*shown
}

// shown is a command of a page and the output that the page shows.
type shown struct {
	line, output string
	// at is the index of the command in lines, number its line number in the file.
	at, number int
}

// readPage finds the commands of a page.
func readPage(text string) *page {
	inside := map[int]bool{} // the line numbers of terminal blocks
	for _, b := range markdown.Parse([]byte(text)).Blocks {
		for i := range strings.Count(b.Text, "\n") {
			inside[b.Line+i] = b.Language == "console"
		}
	}
	p := &page{}
	var current *shown
	for i, line := range strings.Split(text, "\n") {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case !inside[i+1]:
			current = nil
		case isCommand:
			current = &shown{line: command, at: len(p.lines), number: i + 1}
			p.commands = append(p.commands, current)
		case current != nil:
			current.output += line + "\n"
			continue
		}
		p.lines = append(p.lines, line)
	}
	return p
}

// write returns the page with the current output of its commands.
func (p *page) write() string {
	var text strings.Builder
	next := 0
	for i, line := range p.lines {
		text.WriteString(line)
		if i < len(p.lines)-1 {
			text.WriteString("\n")
		}
		if next < len(p.commands) && p.commands[next].at == i {
			text.WriteString(p.commands[next].output)
			next++
		}
	}
	return text.String()
}

// steady replaces the parts of an output that differ in each run. It does not change a text that it has returned.
func steady(output string) string {
	for _, varies := range []struct{ what, becomes string }{
		{`127\.0\.0\.1:\d+`, "127.0.0.1:6443"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`, "2026-01-01T00:00:00Z"},
		{`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`, "00000000-0000-0000-0000-000000000000"},
		{`(?m)[ \t]+$`, ""},
	} {
		output = regexp.MustCompile(varies.what).ReplaceAllString(output, varies.becomes)
	}
	if output != "" && !strings.HasSuffix(output, "\n") {
		output += "\n"
	}
	return output
}

// withoutProgress removes the lines about waiting, which the plugin prints on a busy machine.
func withoutProgress(output string) string {
	return regexp.MustCompile(`(?m)^[A-Z].* …\n`).ReplaceAllString(output, "")
}

// alike reports whether two outputs differ only in the width of columns, which depends on the parts that steady replaces.
func alike(a, b string) bool {
	columns := regexp.MustCompile(` {2,}`)
	return columns.ReplaceAllString(steady(a), "  ") == columns.ReplaceAllString(steady(b), "  ")
}
