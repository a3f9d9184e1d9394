// SPDX-License-Identifier: Apache-2.0

package links

import (
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const root = "../../../.."

// Every link has a target: a file or directory of the repository, a heading of a page, or a well-formed address.
func TestMarkdownLinks(t *testing.T) {
	Expect := NewWithT(t).Expect
	pages := map[string]page{}
	for _, file := range markdown(t) {
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		Expect(err).NotTo(HaveOccurred())
		pages[file] = parse(content)
	}
	Expect(len(pages)).To(BeNumerically(">", 40))
	links := 0
	for file, page := range pages {
		for _, link := range page.links {
			links++
			if fault := check(pages, file, link); fault != "" {
				t.Errorf("%s: %s: %s", file, link, fault)
			}
		}
	}
	Expect(links).To(BeNumerically(">", 300))
}

// check returns the fault of a link, or "".
func check(pages map[string]page, file, link string) string {
	target, err := url.Parse(link)
	switch {
	case err != nil:
		return err.Error()
	case target.Scheme == "mailto":
		return ""
	case target.Scheme != "":
		if target.Scheme != "https" || target.Host == "" {
			return "it is no https address"
		}
		return ""
	}
	name := file
	if target.Path != "" {
		name = path.Join(path.Dir(file), target.Path)
	}
	if strings.HasPrefix(name, "..") || strings.HasPrefix(name, "/") {
		return "it leaves the repository"
	}
	info, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return "there is no such file"
	}
	if info.IsDir() {
		name = path.Join(name, "README.md")
	}
	if page, is := pages[name]; is && target.Fragment != "" && !page.anchors[target.Fragment] {
		return "there is no such heading"
	}
	return ""
}

// markdown returns the Markdown files of the repository, including new files that git does not ignore.
func markdown(t *testing.T) (files []string) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "git", "-C", root,
		"ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md").Output()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for file := range strings.SplitSeq(strings.Trim(string(output), "\x00"), "\x00") {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); err == nil {
			files = append(files, file)
		}
	}
	return files
}

func TestAnchorsAreGitHubs(t *testing.T) {
	for heading, anchor := range map[string]string{
		"# What was run?":                  "what-was-run",
		"## `heirloom-release`, and *why*": "heirloom-release-and-why",
		"## 3. Taints":                     "3-taints",
		"## A – B":                         "a--b",
		"## [A link](x.md) in_it":          "a-link-in_it",
	} {
		NewWithT(t).Expect(parse([]byte(heading)).anchors).To(Equal(map[string]bool{anchor: true}), heading)
	}
	NewWithT(t).Expect(parse([]byte("# A\n## A\n## A\n")).anchors).To(Equal(map[string]bool{"a": true, "a-1": true, "a-2": true}))
}

func TestFaultsAreFound(t *testing.T) {
	pages := map[string]page{"docs/faq.md": {anchors: map[string]bool{"here": true}}}
	for link, fault := range map[string]string{
		"#here":                   "",
		"faq.md#here":             "",
		"../README.md":            "",
		"https://example.com":     "",
		"mailto:me@example.com":   "",
		"#there":                  "there is no such heading",
		"faq.md#there":            "there is no such heading",
		"none.md":                 "there is no such file",
		"../../elsewhere":         "it leaves the repository",
		"http://example.com":      "it is no https address",
		"https:///without-a-host": "it is no https address",
	} {
		NewWithT(t).Expect(check(pages, "docs/faq.md", link)).To(Equal(fault), link)
	}
}
