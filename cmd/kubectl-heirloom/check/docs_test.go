// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// root is the repository.
const root = "../../.."

// docs/kubectl.md has the table of checks, and real output.
func TestDocs(t *testing.T) {
	Expect := NewWithT(t).Expect
	page, err := os.ReadFile(filepath.Join(root, "docs", "kubectl.md"))
	Expect(err).NotTo(HaveOccurred())
	var table strings.Builder
	table.WriteString("| Check | Question |\n|---|---|\n")
	for _, check := range Checks() {
		fmt.Fprintf(&table, "| `%s` | %s |\n", check.Name, check.Asks)
	}
	Expect(string(page)).To(ContainSubstring(table.String()))
	example, err := os.ReadFile(filepath.Join("testdata", "page.golden"))
	Expect(err).NotTo(HaveOccurred())
	Expect(string(page)).To(ContainSubstring("```text\n"+string(example)+"```\n"), "the example is testdata/page.golden")
}

// Every page that a check sends people to exists.
func TestPages(t *testing.T) {
	Expect := NewWithT(t).Expect
	sources, err := filepath.Glob("*.go")
	Expect(err).NotTo(HaveOccurred())
	pages := 0
	for _, source := range sources {
		text, err := os.ReadFile(source)
		Expect(err).NotTo(HaveOccurred())
		for _, page := range regexp.MustCompile(`docs/[\w/-]+\.md`).FindAllString(string(text), -1) {
			Expect(filepath.Join(root, page)).To(BeAnExistingFile(), source)
			pages++
		}
	}
	Expect(pages).To(BeNumerically(">", 5))
}
