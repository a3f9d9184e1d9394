// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/pkg/version"
	"github.com/heirloom-dev/heirloom/test/fleet"
	"github.com/heirloom-dev/heirloom/test/markdown"
)

// lintFile lints a file with the settings of its line "# server-flags: …".
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
	report, err := Lint(set, Settings{Policy: by.Config.Rules, Origin: by.Origin})
	g.Expect(err).NotTo(HaveOccurred())
	return report
}

// TestRules has two files for each rule: a file with findings of the rule, and a similar file without findings.
func TestRules(t *testing.T) {
	files := []string{"sarif.golden"}
	for _, rule := range Rules() {
		for _, name := range []string{rule.ID, rule.ID + "-not"} {
			files = append(files, name+".golden", name+".yaml")
			t.Run(name, func(t *testing.T) {
				g := NewWithT(t)
				report := lintFile(g, filepath.Join("testdata", name+".yaml"))
				of := func(f Finding) bool { return f.Rule == rule.ID }
				g.Expect(slices.ContainsFunc(report.Findings, of)).To(Equal(name == rule.ID), "%v", report.Findings)
				for _, f := range report.Findings {
					g.Expect(Rules()).To(ContainElement(And(HaveField("ID", f.Rule), HaveField("Severity", f.Severity))))
					g.Expect(f.Line).To(BeNumerically(">", 0))
				}
				fleet.Golden(t, name, report.Text(false))
			})
		}
	}
	entries, err := os.ReadDir("testdata")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, entry := range entries {
		NewWithT(t).Expect(files).To(ContainElement(entry.Name()), "the file belongs to no rule")
	}
	NewWithT(t).Expect(slices.IsSortedFunc(Rules(), func(a, b Rule) int { return strings.Compare(a.ID, b.ID) })).To(BeTrue())
}

// TestSARIF checks the fields that code scanning reads: URIs, lines from 1 on, and fingerprints that stay the same if lines above are
// added.
func TestSARIF(t *testing.T) {
	g := NewWithT(t)
	one := Finding{Rule: leftOut.ID, Severity: Warning, File: "a dir/b.yaml", Object: "Machine a", Field: "metadata", Line: 3, Message: "b", Advice: "c"}
	moved, template := one, Finding{Rule: unfilledTemplate.ID, Severity: Note, File: "/tmp/a%b.yaml", Message: "d"}
	moved.Line = 7
	var out, none bytes.Buffer
	g.Expect((&Report{Findings: []Finding{one, moved, template}}).SARIF(&out)).To(Succeed())
	fleet.Golden(t, "sarif", strings.Replace(out.String(), version.String(), "VERSION", 1))
	g.Expect((&Report{}).SARIF(&none)).To(Succeed())
	g.Expect(none.String()).To(ContainSubstring(`"results": []`)) // null is no valid list of results
}

// TestPage compares the table of rules and the example in docs/kubectl.md with the code.
func TestPage(t *testing.T) {
	g, root := NewWithT(t), filepath.Join("..", "..", "..")
	content, err := os.ReadFile(filepath.Join(root, "docs", "kubectl.md"))
	g.Expect(err).NotTo(HaveOccurred())
	page := markdown.Parse(content)
	rows := 0
	for _, row := range page.Rows {
		if strings.HasPrefix(row.Cells[0], "HL") {
			rows++
		}
	}
	g.Expect(rows).To(Equal(len(Rules())))
	for _, rule := range Rules() {
		g.Expect(page.Rows).To(ContainElement(markdown.Row{Section: "lint", Cells: []string{rule.ID, string(rule.Severity), rule.Finds}}))
	}
	report := lintFile(g, filepath.Join(root, "test", "integration", "testdata", "kubectl", "staging.yaml"))
	g.Expect(page.Blocks).To(ContainElement(And(HaveField("Section", "lint"),
		HaveField("Text", HaveSuffix("$ kubectl heirloom lint -f staging.yaml\n"+report.Text(false)+report.Summary()+"\n")))))
}
