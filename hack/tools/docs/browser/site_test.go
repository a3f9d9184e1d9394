// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/net/html"
)

const (
	root = "../../../.."
	// base is the path of the published site.
	base = "/heirloom/"
	// source is the address of the repository at GitHub.
	source = "https://github.com/heirloom-dev/heirloom/"
)

// document has the anchors and the links of a page.
type document struct {
	title    string
	headings int
	anchors  map[string]bool
	links    []string
}

// Every link of every page leads to a page and a place in it, to a file of this repository, or to a well-formed address.
func TestSiteLinks(t *testing.T) {
	pages := load(t)
	for file, page := range pages {
		for _, link := range page.links {
			if fault := check(t, pages, file, link); fault != "" {
				t.Errorf("%s: %s: %s", file, link, fault)
			}
		}
	}
}

// Every Markdown file is a page, with one title, which is its first heading.
func TestSitePages(t *testing.T) {
	Expect := NewWithT(t).Expect
	pages := load(t)
	for file, page := range pages {
		Expect(page.title).NotTo(BeEmpty(), file)
		Expect(page.headings).To(Equal(1), "%s has this many headings of the first level", file)
	}
	for _, directory := range []string{"docs", "docs/runbooks"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(directory), "*.md"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).NotTo(BeEmpty())
		for _, file := range files {
			name := strings.ToLower(strings.TrimSuffix(filepath.Base(file), ".md"))
			if name == "readme" {
				name = "docs"
			}
			Expect(pages).To(HaveKey(path.Join(strings.TrimPrefix(strings.TrimPrefix(directory, "docs"), "/"), name, "index.html")))
		}
	}
	for _, name := range []string{"index", "chart/index", "changelog/index", "security/index", "contributing/index"} {
		Expect(pages).To(HaveKey(name + ".html"))
	}
}

// The page of an example shows its files unchanged, and offers each file for download.
func TestSiteExamples(t *testing.T) {
	Expect := NewWithT(t).Expect
	files, err := filepath.Glob(filepath.Join(root, "docs", "examples", "*", "*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(len(files)).To(BeNumerically(">", 10))
	pages := load(t)
	for _, file := range files {
		wanted, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		example, name := filepath.Base(filepath.Dir(file)), filepath.Base(file)
		Expect(os.ReadFile(filepath.Join(site(t), "examples", example, name))).To(Equal(wanted))
		page := pages["examples/"+example+"/index.html"]
		Expect(page.anchors).To(HaveKey(strings.ReplaceAll(name, ".", "-")), example)
		Expect(page.links).To(ContainElement(base+"examples/"+example+"/"+name), example)
	}
}

// check returns the fault of a link, or "".
func check(t *testing.T, pages map[string]document, file, link string) string {
	t.Helper()
	target, err := url.Parse(link)
	if err != nil {
		return err.Error()
	}
	if of, is := strings.CutPrefix(link, source); is {
		return checkSource(of)
	}
	if target.IsAbs() {
		if target.Scheme != "mailto" && (target.Scheme != "https" || target.Host == "") {
			return "it is no https address"
		}
		return ""
	}
	name := file
	if target.Path != "" {
		var inside bool
		if name, inside = strings.CutPrefix(target.Path, base); !inside {
			return "it leaves the site"
		}
		if name == "" || strings.HasSuffix(name, "/") {
			name += "index.html"
		}
	}
	if _, err := os.Stat(filepath.Join(site(t), filepath.FromSlash(name))); err != nil {
		return "there is no such file"
	}
	if target.Fragment != "" && !pages[name].anchors[target.Fragment] {
		return "there is no such place"
	}
	return ""
}

// checkSource checks a link to a file of this repository, after "blob/main/".
func checkSource(link string) string {
	kind, rest, _ := strings.Cut(link, "/")
	if kind != "blob" && kind != "tree" && kind != "edit" {
		return ""
	}
	_, name, _ := strings.Cut(rest, "/")
	name, _, _ = strings.Cut(name, "#")
	info, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return "there is no such file in the repository"
	}
	if info.IsDir() != (kind == "tree") {
		return "GitHub has it under another address: it is a directory, or none"
	}
	return ""
}

// site returns the directory of the site.
func site(t *testing.T) string {
	t.Helper()
	directory := os.Getenv("HEIRLOOM_SITE_DIR")
	if directory == "" {
		t.Skip("there is no HEIRLOOM_SITE_DIR: run `hack/test.sh site`")
	}
	return directory
}

// load reads all pages, by path.
func load(t *testing.T) map[string]document {
	t.Helper()
	Expect := NewWithT(t).Expect
	directory, pages := site(t), map[string]document{}
	Expect(filepath.WalkDir(directory, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".html" {
			return err
		}
		name, _ := filepath.Rel(directory, file)
		opened, err := os.Open(file)
		if err != nil {
			return err
		}
		defer opened.Close()
		tree, err := html.Parse(opened)
		pages[filepath.ToSlash(name)] = read(tree)
		return err
	})).To(Succeed())
	Expect(len(pages)).To(BeNumerically(">", 40))
	return pages
}

func read(tree *html.Node) document {
	page := document{anchors: map[string]bool{}}
	for node := range tree.Descendants() {
		if node.Type != html.ElementNode {
			continue
		}
		switch {
		case node.Data == "title" && node.FirstChild != nil && node.Parent.Data == "head":
			page.title = node.FirstChild.Data
		case node.Data == "h1":
			page.headings++
		}
		for _, attribute := range node.Attr {
			switch attribute.Key {
			case "id":
				page.anchors[attribute.Val] = true
			case "href", "src":
				page.links = append(page.links, attribute.Val)
			}
		}
	}
	return page
}
