// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// TestReasonsAreDocumented holds the constants of reasons and the table of Events in docs/monitoring.md together, and keeps other
// reasons out of the code. It is in a package of its own, because Go repeats the tests of a package that read files in every new checkout.
func TestReasonsAreDocumented(t *testing.T) {
	Expect := NewWithT(t).Expect
	page, err := os.ReadFile("../../docs/monitoring.md")
	Expect(err).NotTo(HaveOccurred())
	_, events, found := strings.Cut(string(page), "\n## Events\n")
	Expect(found).To(BeTrue())
	events, _, _ = strings.Cut(events, "\n## ")
	documented := matches("(?m)^\\| `([A-Za-z]+)` \\| (?:Normal|Warning) \\|", events)

	var reasons []string
	files, err := filepath.Glob("../../pkg/controllers/*.go")
	Expect(err).NotTo(HaveOccurred())
	for _, file := range append(files, "../../pkg/workload/admission.go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		code, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		reasons = append(reasons, matches(`(?m)^(?:const )?\s*[rR]eason\w* += "(\w+)"`, string(code))...)
		Expect(matches(`\.Eventf\([^,]+, [^,]+, [^,]+, ("[^,]*)`, string(code))).To(BeEmpty(), "a reason in %s is a constant", file)
	}
	Expect(reasons).NotTo(BeEmpty())
	Expect(documented).To(ConsistOf(reasons))
}

// matches returns the first group of each match.
func matches(pattern, text string) (groups []string) {
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		groups = append(groups, match[1])
	}
	return groups
}
