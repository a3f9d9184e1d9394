// SPDX-License-Identifier: Apache-2.0

package markdown

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	. "github.com/onsi/gomega"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// linked has the anchors and the links of a page, as GitHub shows it.
type linked struct{ anchors, links []string }

// Each link of a page leads to a file of the repository, to a heading of a page, or to an https address.
func TestLinks(t *testing.T) {
	Expect := NewWithT(t).Expect
	root := os.DirFS("../..")
	pages := map[string]linked{}
	Expect(fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "dist"}, name):
			return fs.SkipDir
		case path.Ext(name) != ".md":
			return nil
		}
		source, err := fs.ReadFile(root, name)
		pages[name] = linksOf(source)
		return err
	})).To(Succeed())
	Expect(len(pages)).To(BeNumerically(">", 40))
	for name, page := range pages {
		for _, link := range page.links {
			if fault := faultOf(root, pages, name, link); fault != "" {
				t.Errorf("%s: %s: %s", name, link, fault)
			}
		}
	}
}

func TestFaultsOfLinks(t *testing.T) {
	pages := map[string]linked{"docs/faq.md": linksOf([]byte("# What was run?\n## `a_b`, and *c – d*\n## `a_b`, and *c – d*\n"))}
	for link, fault := range map[string]string{
		"#what-was-run":         "",
		"faq.md#a_b-and-c--d":   "",
		"#a_b-and-c--d-1":       "",
		"../README.md":          "",
		"https://example.com":   "",
		"mailto:me@example.com": "",
		"faq.md#there":          "there is no such heading",
		"none.md":               "there is no such file",
		"../../elsewhere":       "there is no such file",
		"http://example.com":    "it is no https address",
	} {
		NewWithT(t).Expect(faultOf(os.DirFS("../.."), pages, "docs/faq.md", link)).To(Equal(fault), link)
	}
	NewWithT(t).Expect(linksOf([]byte("[a](b.md) ![c](d.svg) <https://e> <img src=\"f.png\">\n\n    [code](g)\n")).links).
		To(Equal([]string{"b.md", "d.svg", "https://e", "f.png"}))
}

// faultOf returns the fault of a link on a page, or "".
func faultOf(root fs.FS, pages map[string]linked, on, link string) string {
	target, err := url.Parse(link)
	switch {
	case err != nil:
		return err.Error()
	case target.Scheme == "mailto", target.Scheme == "https" && target.Host != "":
		return ""
	case target.Scheme != "":
		return "it is no https address"
	}
	name := on
	if target.Path != "" {
		name = path.Join(path.Dir(on), target.Path)
	}
	if _, err := fs.Stat(root, name); err != nil {
		return "there is no such file"
	}
	if page, is := pages[name]; is && target.Fragment != "" && !slices.Contains(page.anchors, target.Fragment) {
		return "there is no such heading"
	}
	return ""
}

func linksOf(source []byte) (of linked) {
	inHTML := regexp.MustCompile(`\b(?:(?:href|src|srcset)|(id|name))="([^"]*)"`)
	document := goldmark.DefaultParser().Parse(text.NewReader(source))
	_ = ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var html []byte
		switch node := node.(type) {
		case *ast.Heading:
			of.addAnchor(plain(node, source))
		case *ast.Link:
			of.links = append(of.links, string(node.Destination))
		case *ast.Image:
			of.links = append(of.links, string(node.Destination))
		case *ast.AutoLink:
			of.links = append(of.links, string(node.URL(source)))
		case *ast.RawHTML:
			html = node.Segments.Value(source)
		case *ast.HTMLBlock:
			html = node.Lines().Value(source)
		}
		for _, attribute := range inHTML.FindAllSubmatch(html, -1) {
			if len(attribute[1]) > 0 {
				of.anchors = append(of.anchors, string(attribute[2]))
			} else {
				of.links = append(of.links, string(attribute[2]))
			}
		}
		return ast.WalkContinue, nil
	})
	return of
}

// addAnchor adds the anchor that GitHub generates from a heading.
func (l *linked) addAnchor(heading string) {
	base := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
	anchor := base
	for i := 1; slices.Contains(l.anchors, anchor); i++ {
		anchor = fmt.Sprintf("%s-%d", base, i)
	}
	l.anchors = append(l.anchors, anchor)
}

// plain returns the text of a node, without its markup.
func plain(node ast.Node, source []byte) string {
	var text strings.Builder
	_ = ast.Walk(node, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if leaf, is := node.(*ast.Text); is && entering {
			text.Write(leaf.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return text.String()
}
