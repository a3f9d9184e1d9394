// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

var update = flag.Bool("update", false, "write testdata/golden anew")

// A run writes, prints and draws exactly the files in testdata/golden, twice in a row.
func TestGolden(t *testing.T) {
	Expect := NewWithT(t).Expect
	c := contentsOf(t)
	page := filepath.Join(t.TempDir(), "page.md")
	text, err := os.ReadFile("testdata/page.md")
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(page, text, 0o600)).To(Succeed())
	for range 2 {
		found, err := readFile("testdata/bench.txt")
		Expect(err).NotTo(HaveOccurred())
		var printed bytes.Buffer
		Expect(printTable(&printed, found.rows, c)).To(Succeed())
		Expect(updatePage(page, found, c, 3, &printed)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(filepath.Dir(page), "stdout.txt"), printed.Bytes(), 0o600)).To(Succeed())
		files, err := os.ReadDir(filepath.Dir(page))
		Expect(err).NotTo(HaveOccurred())
		var names []string
		for _, file := range files {
			names = append(names, file.Name())
			golden(t, filepath.Join(filepath.Dir(page), file.Name()))
		}
		Expect(names).To(ConsistOf("page.md", "stdout.txt", "admission.svg", "memory.svg"))
	}
}

func contentsOf(t *testing.T) *contents {
	t.Helper()
	text, err := os.ReadFile("testdata/contents.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	c, err := parseContents(text)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

func golden(t *testing.T, file string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	is, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	name := filepath.Join("testdata", "golden", filepath.Base(file))
	if *update {
		Expect(os.WriteFile(name, is, 0o600)).To(Succeed())
	}
	want, err := os.ReadFile(name)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(is)).To(Equal(string(want)), name+": if this is right, go -C hack/tools/docs test -update ./bench")
}

func TestQuartiles(t *testing.T) {
	Expect := NewWithT(t).Expect
	found, err := read(strings.NewReader("BenchmarkA-8 1 3 ns/op\nBenchmarkA-8 1 1 ns/op\nBenchmarkA-8 1 2 ns/op\n"), "")
	Expect(err).NotTo(HaveOccurred())
	r := found.rows[0]
	Expect(r.quantile(0.5)).To(Equal(2.0))
	Expect(r.quantile(0.25)).To(BeNumerically("~", 1.17, 0.01))
	Expect(r.quantile(0.75)).To(BeNumerically("~", 2.83, 0.01))
	Expect(r.n()).To(Equal(3))
}

func TestNumbers(t *testing.T) {
	for value, text := range map[float64]string{
		0: "0", 0.6394: "0.639", 1: "1", 2.996: "3", 99.96: "100", 254.4: "254", 1234: "1,230", -12345678: "-12,300,000", 0.0001234: "0.000123",
	} {
		NewWithT(t).Expect(number(value)).To(Equal(text))
	}
}

func TestFaults(t *testing.T) {
	Expect := NewWithT(t).Expect
	_, err := read(strings.NewReader("PASS\n"), "bench.txt")
	Expect(err).To(MatchError("bench.txt has no results of benchmarks"))
	_, err = read(strings.NewReader("BenchmarkA 1 fast ns/op\n"), "bench.txt")
	Expect(err).To(MatchError(ContainSubstring("bench.txt:1")))
	_, err = parseContents([]byte("sections:\n- names: x\n"))
	Expect(err).To(MatchError(ContainSubstring(`unknown field "names"`)))

	page := filepath.Join(t.TempDir(), "page.md")
	Expect(os.WriteFile(page, []byte("<!-- bench:admission -->\n"), 0o600)).To(Succeed())
	found, err := readFile("testdata/bench.txt")
	Expect(err).NotTo(HaveOccurred())
	Expect(updatePage(page, found, contentsOf(t), 3, &bytes.Buffer{})).To(MatchError(
		ContainSubstring("no lines <!-- bench:admission --> and <!-- /bench:admission -->")))
}

// The page has a place for exactly the sections of the contents, and each target belongs to a section.
func TestPageAndContentsAgree(t *testing.T) {
	Expect := NewWithT(t).Expect
	c, err := loadContents()
	Expect(err).NotTo(HaveOccurred())
	text, err := os.ReadFile("../../../../docs/performance/README.md")
	Expect(err).NotTo(HaveOccurred())
	for _, s := range c.Sections {
		_, err := replace(string(text), s.Name, "")
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(strings.Count(string(text), "<!-- bench:")).To(Equal(len(c.Sections)))
	for _, goal := range c.Targets {
		shown := false
		for _, s := range c.Sections {
			shown = shown || len(s.rows([]*row{{benchmark: goal.Benchmark, metric: goal.Metric}}, append(s.Chart, s.Table...))) > 0
		}
		Expect(shown).To(BeTrue(), "%s %s", goal.Benchmark, goal.Metric)
	}
}
