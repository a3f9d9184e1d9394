// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// Each minor version has the text of its newest patch, pre-releases have none, and every page has a menu of all versions.
func TestVersions(t *testing.T) {
	site(t)
	Expect := NewWithT(t).Expect
	repository := t.TempDir()
	git := func(args ...string) []byte {
		t.Helper()
		command := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=test", "-c", "user.email=test@example.com",
			"-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"}, args...)...)
		command.Dir = repository
		output, err := command.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		return output
	}
	absolute, err := filepath.Abs(root)
	Expect(err).NotTo(HaveOccurred())
	files := git("-C", absolute, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--",
		"*.md", "docs", "deploy/chart/heirloom", "hack")
	for file := range bytes.SplitSeq(bytes.Trim(files, "\x00"), []byte{0}) {
		copyFile(t, filepath.Join(absolute, string(file)), filepath.Join(repository, string(file)))
	}
	faq := filepath.Join(repository, "docs", "faq.md")
	git("init", "--quiet", "--initial-branch=main")
	for _, tag := range []string{"v0.9.0", "v0.9.1", "v0.10.0", "v0.11.0-rc.1"} {
		Expect(os.WriteFile(faq, []byte("# FAQ\n\nAs of "+tag+": [code](../go.mod), [rules](rules.md).\n"), 0o600)).To(Succeed())
		git("add", "--all")
		git("commit", "--quiet", "--message", tag)
		git("tag", tag)
	}
	Expect(os.WriteFile(faq, []byte("# FAQ\n\nAs of now: [code](../go.mod), [rules](rules.md).\n"), 0o600)).To(Succeed())

	target := filepath.Join(t.TempDir(), "site")
	command := exec.CommandContext(t.Context(), filepath.Join(repository, "hack", "site.sh"), target)
	command.Env = append(os.Environ(), "SITE_URL=https://docs.example.com/h")
	output, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))

	for path, version := range map[string]struct{ name, text, ref string }{
		"":       {"main", "As of now", "main"},
		"v0.9/":  {"v0.9", "As of v0.9.1", "v0.9.1"},
		"v0.10/": {"v0.10", "As of v0.10.0", "v0.10.0"},
	} {
		content, err := os.ReadFile(filepath.Join(target, path, "faq", "index.html"))
		Expect(err).NotTo(HaveOccurred())
		page := string(content)
		Expect(page).To(ContainSubstring(version.text))
		Expect(page).To(ContainSubstring("https://github.com/heirloom-dev/heirloom/blob/" + version.ref + "/go.mod"))
		Expect(page).To(ContainSubstring("href=/h/" + path + "rules/"))
		Expect(page).To(MatchRegexp(`href="?https://docs.example.com/h/%s"? aria-current="?true`, path))
		menu := page[strings.Index(page, "heirloom-versions"):]
		menu = menu[:strings.Index(menu, "</details>")]
		Expect(menu).To(MatchRegexp(`(?s)>main<.*>v0\.10<.*>v0\.9<`))
		Expect(menu).NotTo(ContainSubstring("v0.11"))
	}
	Expect(filepath.Glob(filepath.Join(target, "v0.*"))).To(HaveLen(2))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	info, err := os.Stat(from)
	if os.IsNotExist(err) {
		return
	}
	Expect(err).NotTo(HaveOccurred())
	content, err := os.ReadFile(from)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.MkdirAll(filepath.Dir(to), 0o755)).To(Succeed())
	Expect(os.WriteFile(to, content, info.Mode())).To(Succeed())
}
