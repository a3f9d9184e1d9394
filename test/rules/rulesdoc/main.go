// SPDX-License-Identifier: Apache-2.0

// Command rulesdoc writes docs/rules.md from the table of rules. go generate runs it.
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/rules"
)

//go:embed page.md.tmpl
var pageTemplate string

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: rulesdoc <directory of the rules' code> <file to write>")
		os.Exit(2)
	}
	page, err := render(os.Args[1])
	if err == nil {
		err = os.WriteFile(os.Args[2], page, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rulesdoc:", err)
		os.Exit(1)
	}
}

// render returns the page about the rules, with links to the code of the Go package at dir.
func render(dir string) ([]byte, error) {
	code, err := functions(dir)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New("").Funcs(template.FuncMap{
		"cell": cell, "flow": flow, "sequence": sequence,
		"links": func(rule rules.Rule) (string, error) { return links(code, rule) },
	}).Parse(pageTemplate)
	if err != nil {
		return nil, fmt.Errorf("reading the page's template: %w", err)
	}
	var page bytes.Buffer
	err = parsed.Execute(&page, map[string]any{
		"Rules": rules.All(), "Capacity": rules.Capacity(),
		"NeverKeys": inherit.NeverKeys, "NeverDomains": inherit.NeverDomains,
		// Domains exclude their subdomains, families include them.
		"BookkeepingDomains": inherit.BookkeepingDomains, "BookkeepingFamilies": inherit.BookkeepingFamilies,
		"FamilyLabels": inherit.FamilyLabels, "TopologyLabels": inherit.TopologyLabels,
	})
	if err != nil {
		return nil, fmt.Errorf("filling the page's template: %w", err)
	}
	return page.Bytes(), nil
}

// functions returns the file of every function in the Go package at dir, without tests. A method is "Type.Method".
func functions(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("listing the code of the rules: %w", err)
	}
	found := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the code of the rules: %w", err)
		}
		for _, function := range regexp.MustCompile(`(?m)^func (?:\((?:\w+ )?\*?(\w+)\) )?(\w+)`).FindAllStringSubmatch(string(content), -1) {
			found[strings.TrimPrefix(function[1]+"."+function[2], ".")] = filepath.Base(file)
		}
	}
	return found, nil
}

// links returns a link for each function that a rule names. A missing function is an error, because the rule no longer describes the code.
func links(code map[string]string, rule rules.Rule) (string, error) {
	if rule.Code == "" {
		return nothing, nil
	}
	var links []string
	for name := range strings.SplitSeq(rule.Code, ", ") {
		file, ok := code[name]
		if !ok {
			return "", fmt.Errorf("rule %d names %q as its code, and there is no such function", rule.Number, name)
		}
		links = append(links, fmt.Sprintf("[`%s`](%s)", name, path.Join("../pkg/inherit", file)))
	}
	return strings.Join(links, ", "), nil
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

// sequence writes a list into a sentence.
func sequence(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return "`" + names[0] + "`"
	}
	return "`" + strings.Join(names[:last], "`, `") + "` and `" + names[last] + "`"
}
