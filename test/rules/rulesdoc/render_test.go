// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/rules"
)

const (
	rulesDir = "../../../pkg/inherit"
	rulesDoc = "../../../docs/rules.md"
)

// The page in the tree equals the page that the code renders.
func TestPageIsCurrent(t *testing.T) {
	Expect := NewWithT(t).Expect
	want, err := render(rulesDir, rulesDoc)
	Expect(err).NotTo(HaveOccurred())
	got, err := os.ReadFile(rulesDoc)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(got)).To(Equal(string(want)), "docs/rules.md is not what the code says: run make generate")
}

// The table is complete, and each row leads to code and to a reason.
func TestRulesAreComplete(t *testing.T) {
	Expect := NewWithT(t).Expect
	code, err := functions(rulesDir)
	Expect(err).NotTo(HaveOccurred())
	var numbers []int
	for _, rule := range rules.All() {
		numbers = append(numbers, rule.Number)
		Expect(rule.From).NotTo(BeEmpty(), "rule %d", rule.Number)
		Expect(rule.To).NotTo(BeEmpty(), "rule %d", rule.Number)
		Expect(rule.Source).NotTo(BeEmpty(), "rule %d", rule.Number)
		carries := false
		for _, flow := range []rules.Flow{rule.Labels, rule.Annotations, rule.Taints, rule.Fields} {
			carries = carries || flow.Carried
			Expect(flow.Carried || flow.How == "").To(BeTrue(), "rule %d says how it carries what it does not carry", rule.Number)
		}
		if !carries {
			Expect(rule.Code).To(BeEmpty(), "rule %d carries nothing", rule.Number)
			continue
		}
		for name := range strings.SplitSeq(rule.Code, ", ") {
			Expect(code).To(HaveKey(name), "rule %d", rule.Number)
		}
	}
	Expect(numbers).To(Equal([]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}))
}

func TestCells(t *testing.T) {
	Expect := NewWithT(t).Expect
	Expect(flow(rules.Flow{})).To(Equal("–"))
	Expect(flow(rules.Flow{Carried: true})).To(Equal("yes"))
	Expect(flow(rules.Flow{Carried: true, How: "a | b"})).To(Equal(`a \| b`))
	Expect(cell("")).To(Equal("–"))
	Expect(sequence([]string{"a"})).To(Equal("`a`"))
	Expect(sequence([]string{"a", "b", "c"})).To(Equal("`a`, `b` and `c`"))
}

func TestLinks(t *testing.T) {
	Expect := NewWithT(t).Expect
	dir := t.TempDir()
	Expect(os.WriteFile(filepath.Join(dir, "a.go"),
		[]byte("package a\n\nfunc F() {}\n\nfunc (T) M() {}\n\nfunc (*T) P() {}\n\nfunc (G[X]) Q() {}\n"), 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(dir, "a_test.go"), []byte("package a\n\nfunc InTest() {}\n"), 0o600)).To(Succeed())
	code, err := functions(dir)
	Expect(err).NotTo(HaveOccurred())
	l := linker{code: code, base: "../code"}

	Expect(l.links(rules.Rule{Number: 1})).To(Equal("–"))
	Expect(l.links(rules.Rule{Number: 1, Code: "T.M, F, T.P"})).
		To(Equal("[`T.M`](../code/a.go), [`F`](../code/a.go), [`T.P`](../code/a.go)"))
	for _, gone := range []string{"M", "Q", "InTest", "T.F"} {
		_, err = fill(page{Rules: []rules.Rule{{Number: 7, Code: gone}}}, l)
		Expect(err).To(MatchError(ContainSubstring("rule 7 names %q as its code, and there is no such function", gone)))
	}
}

func TestCodeThatCannotBeRead(t *testing.T) {
	Expect := NewWithT(t).Expect
	dir := t.TempDir()
	Expect(os.WriteFile(filepath.Join(dir, "a.go"), []byte("no code"), 0o600)).To(Succeed())
	_, err := render(dir, rulesDoc)
	Expect(err).To(MatchError(ContainSubstring("reading the code of the rules")))
}

func TestRun(t *testing.T) {
	Expect := NewWithT(t).Expect
	Expect(run(nil)).To(MatchError(ContainSubstring("usage")))
	Expect(run([]string{rulesDir, filepath.Join(t.TempDir(), "missing", "rules.md")})).To(MatchError(ContainSubstring("writing the page")))
}
