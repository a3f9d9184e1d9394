// SPDX-License-Identifier: Apache-2.0

// Package markdown finds blocks of code and rows of tables in the pages of the documentation, as GitHub shows them.
package markdown

import (
	"bytes"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// Page has the contents of a page, in order.
type Page struct {
	Blocks []Block
	Rows   []Row
}

// Block is a block of code: fenced, or indented.
type Block struct {
	// Section is the heading above.
	Section string
	// Language is the language of a fence, "" without a fence.
	Language string
	// Line is the number of the first line of Text in the page.
	Line int
	Text string
}

// Row is a row of a table. Its cells have the text with its markup.
type Row struct {
	Section string
	Cells   []string
}

// Parse reads a page.
func Parse(source []byte) Page {
	page, section := Page{}, ""
	document := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(source))
	_ = ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch node := node.(type) {
		case *ast.Heading:
			section = string(node.Lines().Value(source))
		case *ast.FencedCodeBlock:
			page.add(section, string(node.Language(source)), node.Lines(), source)
		case *ast.CodeBlock:
			page.add(section, "", node.Lines(), source)
		case *tables.TableHeader, *tables.TableRow:
			row := Row{Section: section}
			for cell := node.FirstChild(); cell != nil; cell = cell.NextSibling() {
				row.Cells = append(row.Cells, strings.ReplaceAll(string(cell.Lines().Value(source)), `\|`, "|"))
			}
			page.Rows = append(page.Rows, row)
		}
		return ast.WalkContinue, nil
	})
	return page
}

func (p *Page) add(section, language string, lines *text.Segments, source []byte) {
	if lines.Len() == 0 {
		return
	}
	at := bytes.Count(source[:lines.At(0).Start], []byte("\n")) + 1
	p.Blocks = append(p.Blocks, Block{Section: section, Language: language, Line: at, Text: string(lines.Value(source))})
}

// Commands returns the text of a block that a reader types: of a console block, the lines after the prompt.
func (b Block) Commands() string {
	if b.Language != "console" {
		return b.Text
	}
	var typed strings.Builder
	for line := range strings.Lines(b.Text) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			typed.WriteString(command)
		}
	}
	return typed.String()
}
