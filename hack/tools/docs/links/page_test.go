// SPDX-License-Identifier: Apache-2.0

package links

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// page has the anchors and the links of a Markdown file.
type page struct {
	anchors map[string]bool
	links   []string
}

func parse(source []byte) page {
	result := page{anchors: map[string]bool{}}
	document := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	_ = ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch node := node.(type) {
		case *ast.Heading:
			result.addAnchor(plain(node, source))
		case *ast.Link:
			result.links = append(result.links, string(node.Destination))
		case *ast.Image:
			result.links = append(result.links, string(node.Destination))
		case *ast.AutoLink:
			if node.AutoLinkType == ast.AutoLinkURL {
				result.links = append(result.links, string(node.URL(source)))
			}
		case *ast.RawHTML:
			result.addHTML(node.Segments.Value(source))
		case *ast.HTMLBlock:
			result.addHTML(node.Lines().Value(source))
		}
		return ast.WalkContinue, nil
	})
	return result
}

// addAnchor adds the anchor that GitHub generates from a heading.
func (p page) addAnchor(heading string) {
	base := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
	anchor := base
	for i := 1; p.anchors[anchor]; i++ {
		anchor = fmt.Sprintf("%s-%d", base, i)
	}
	p.anchors[anchor] = true
}

func (p *page) addHTML(html []byte) {
	for _, match := range regexp.MustCompile(`\b(href|src|srcset|id|name)="([^"]*)"`).FindAllSubmatch(html, -1) {
		switch string(match[1]) {
		case "id", "name":
			p.anchors[string(match[2])] = true
		default:
			p.links = append(p.links, string(match[2]))
		}
	}
}

// plain returns the text of a node, without its markup.
func plain(node ast.Node, source []byte) string {
	var result bytes.Buffer
	_ = ast.Walk(node, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if leaf, is := node.(*ast.Text); is && entering {
			result.Write(leaf.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return result.String()
}
