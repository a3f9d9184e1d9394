// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/rules"
)

//go:embed page.md.tmpl
var templates embed.FS

// page has the data of the template.
type page struct {
	Rules                   []rules.Rule
	Capacity                rules.Rule
	NeverKeys, NeverDomains []string
	// BookkeepingDomains exclude their subdomains, BookkeepingFamilies include them.
	BookkeepingDomains, BookkeepingFamilies []string
	FamilyLabels, TopologyLabels            []string
}

// render returns the page about the rules of the Go package at dir. Its links are relative to the file out.
func render(dir, out string) ([]byte, error) {
	code, err := functions(dir)
	if err != nil {
		return nil, err
	}
	base, err := way(filepath.Dir(out), dir)
	if err != nil {
		return nil, fmt.Errorf("finding the way from the page to the code: %w", err)
	}
	return fill(currentPage(), linker{code: code, base: base})
}

// way returns the path of a link from one directory to another.
func way(from, to string) (string, error) {
	from, fromErr := filepath.Abs(from)
	to, toErr := filepath.Abs(to)
	if err := errors.Join(fromErr, toErr); err != nil {
		return "", err
	}
	relative, err := filepath.Rel(from, to)
	return filepath.ToSlash(relative), err
}

func currentPage() page {
	p := page{Rules: rules.All(), Capacity: rules.Capacity(), FamilyLabels: inherit.FamilyLabels, TopologyLabels: inherit.TopologyLabels}
	p.NeverKeys, p.NeverDomains = inherit.NeverKeys, inherit.NeverDomains
	p.BookkeepingDomains, p.BookkeepingFamilies = inherit.BookkeepingDomains, inherit.BookkeepingFamilies
	return p
}

func fill(p page, l linker) ([]byte, error) {
	parsed, err := template.New("").Funcs(template.FuncMap{
		"cell": cell, "flow": flow, "links": l.links, "sequence": sequence,
	}).ParseFS(templates, "page.md.tmpl")
	if err != nil {
		return nil, fmt.Errorf("reading the page's template: %w", err)
	}
	var buffer bytes.Buffer
	if err := parsed.ExecuteTemplate(&buffer, "page.md.tmpl", p); err != nil {
		return nil, fmt.Errorf("filling the page's template: %w", err)
	}
	return buffer.Bytes(), nil
}

// nothing is the text of a cell without content.
const nothing = "–"

// cell returns the text as one cell of a Markdown table.
func cell(text string) string {
	if text == "" {
		return nothing
	}
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}

func flow(f rules.Flow) string {
	switch {
	case !f.Carried:
		return nothing
	case f.How == "":
		return "yes"
	default:
		return cell(f.How)
	}
}

// linker makes links to the code.
type linker struct {
	// code has the file of every function.
	code map[string]string
	// base is the path from the page to these files.
	base string
}

// links returns a link for each function that a rule names. A missing function is an error, because the rule no longer describes the code.
func (l linker) links(rule rules.Rule) (string, error) {
	if rule.Code == "" {
		return nothing, nil
	}
	var links []string
	for name := range strings.SplitSeq(rule.Code, ", ") {
		file, ok := l.code[name]
		if !ok {
			return "", fmt.Errorf("rule %d names %q as its code, and there is no such function", rule.Number, name)
		}
		links = append(links, fmt.Sprintf("[`%s`](%s)", name, path.Join(l.base, file)))
	}
	return strings.Join(links, ", "), nil
}

// sequence writes a list into a sentence.
func sequence(names []string) string {
	quoted := make([]string, 0, len(names))
	for _, name := range names {
		quoted = append(quoted, "`"+name+"`")
	}
	last := len(quoted) - 1
	if last < 1 {
		return strings.Join(quoted, "")
	}
	return strings.Join(quoted[:last], ", ") + " and " + quoted[last]
}
