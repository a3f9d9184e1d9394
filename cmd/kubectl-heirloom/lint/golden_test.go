// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// lintFile judges a file, by the settings that its line "# server-flags: …" gives.
func lintFile(g *WithT, name string) *Report {
	g.THelper()
	content, err := os.ReadFile(name)
	g.Expect(err).NotTo(HaveOccurred())
	flags := settings.Flags{}
	for line := range strings.Lines(string(content)) {
		if given, ok := strings.CutPrefix(line, "# server-flags: "); ok {
			flags.ServerFlags = strings.Fields(given)
		}
	}
	by, err := flags.Offline()
	g.Expect(err).NotTo(HaveOccurred())
	set := &manifest.Set{}
	g.Expect(set.Parse(filepath.Base(name), content)).To(Succeed())
	report, err := Lint(set, Settings{Policy: by.Config.Rules, Known: by.Known, Origin: by.Origin})
	g.Expect(err).NotTo(HaveOccurred())
	return report
}

// TestRules has two files for each rule: one in which the rule finds something, and a similar one in which it does not.
func TestRules(t *testing.T) {
	for _, rule := range Rules() {
		for _, name := range []string{rule.ID, rule.ID + "-not"} {
			t.Run(name, func(t *testing.T) {
				g := NewWithT(t)
				report := lintFile(g, filepath.Join("testdata", name+".yaml"))
				of := func(f Finding) bool { return f.Rule == rule.ID }
				g.Expect(slices.ContainsFunc(report.Findings, of)).To(Equal(name == rule.ID), "%v", report.Findings)
				for _, f := range report.Findings {
					g.Expect(f.Severity).To(Equal(ruleOf(f.Rule).Severity))
					g.Expect(f.Line).To(BeNumerically(">", 0))
				}
				var out bytes.Buffer
				g.Expect(report.Text(&out, false)).To(Succeed())
				golden(g, filepath.Join("testdata", name+".golden"), out.Bytes())
			})
		}
	}
}

func golden(g *WithT, name string, got []byte) {
	g.THelper()
	if *update {
		g.Expect(os.WriteFile(name, got, 0o644)).To(Succeed())
	}
	want, err := os.ReadFile(name)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(got)).To(Equal(string(want)), "if this is right: go test ./cmd/kubectl-heirloom/lint -update")
}

// TestNoFileIsLeftOver fails if a file of testdata belongs to no rule.
func TestNoFileIsLeftOver(t *testing.T) {
	g := NewWithT(t)
	var want []string
	for _, rule := range Rules() {
		for _, name := range []string{rule.ID, rule.ID + "-not"} {
			want = append(want, name+".golden", name+".yaml")
		}
	}
	entries, err := os.ReadDir("testdata")
	g.Expect(err).NotTo(HaveOccurred())
	var have []string
	for _, entry := range entries {
		have = append(have, entry.Name())
	}
	g.Expect(have).To(ConsistOf(want))
}

func TestRulesHaveNumbersInOrder(t *testing.T) {
	g := NewWithT(t)
	ids := []string{}
	for _, rule := range Rules() {
		g.Expect(rule.ID).To(MatchRegexp(`^HL\d{3}$`))
		g.Expect(rule.Name).To(MatchRegexp(`^[a-z-]+$`))
		ids = append(ids, rule.ID)
	}
	g.Expect(slices.IsSorted(ids)).To(BeTrue())
	g.Expect(slices.Compact(ids)).To(HaveLen(len(Rules())))
}

// TestExamples holds the examples of the documentation to the rules. What is found there is meant.
func TestExamples(t *testing.T) {
	root := filepath.Join("..", "..", "..", "docs", "examples")
	meant := map[string][]string{
		"clusterclass": {valueReplaced, listReplaced}, // its README says so: one pool overrides a label and all taints
		"gpu-pool":     {notForNodes, restrictedLabel},
		"tenant-pool":  {restrictedLabel},
	}
	dirs, err := filepath.Glob(filepath.Join(root, "*", "README.md"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(dirs).To(HaveLen(9))
	for _, readme := range dirs {
		dir := filepath.Base(filepath.Dir(readme))
		t.Run(dir, func(t *testing.T) {
			g, set := NewWithT(t), &manifest.Set{}
			files, err := filepath.Glob(filepath.Join(root, dir, "*.yaml"))
			g.Expect(err).NotTo(HaveOccurred())
			for _, file := range files {
				content, err := os.ReadFile(file)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(set.Parse(file, content)).To(Succeed())
			}
			report, err := Lint(set, Settings{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(report.Objects).To(BeNumerically(">", 0))
			var found []string
			for _, f := range report.Findings {
				found = append(found, f.Rule)
			}
			g.Expect(found).To(Equal(meant[dir]))
		})
	}
}

// page returns the section about lint of the page about the plugin.
func page(g *WithT) string {
	g.THelper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "kubectl.md"))
	g.Expect(err).NotTo(HaveOccurred())
	_, section, found := strings.Cut(string(content), "\n## lint\n")
	g.Expect(found).To(BeTrue())
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// TestPage holds the table of rules and the example of the page to the code.
func TestPage(t *testing.T) {
	g := NewWithT(t)
	section, rows := page(g), 0
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| HL") {
			rows++
		}
	}
	g.Expect(rows).To(Equal(len(Rules())))
	for _, rule := range Rules() {
		g.Expect(section).To(ContainSubstring("| " + rule.ID + " | " + string(rule.Severity) + " | " + rule.Finds + " |\n"))
	}

	name := filepath.Join("..", "..", "..", "test", "integration", "testdata", "kubectl", "staging.yaml")
	report := lintFile(g, name)
	var out bytes.Buffer
	g.Expect(report.Text(&out, false)).To(Succeed())
	g.Expect(section).To(ContainSubstring("$ kubectl heirloom lint -f staging.yaml\n" + out.String() + report.Summary() + "\n```\n"))
}
