// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
)

// TestSARIF checks what version 2.1.0 of the schema requires, and what code scanning reads.
func TestSARIF(t *testing.T) {
	g := NewWithT(t)
	report := lintFile(g, filepath.Join("testdata", "HL001.yaml"))
	var out bytes.Buffer
	g.Expect(report.SARIF(&out)).To(Succeed())

	var log struct {
		Schema  string           `json:"$schema"`
		Version string           `json:"version"`
		Runs    []map[string]any `json:"runs"`
	}
	g.Expect(json.Unmarshal(out.Bytes(), &log)).To(Succeed())
	g.Expect(log.Version).To(Equal("2.1.0"))
	g.Expect(log.Schema).To(ContainSubstring("sarif-2.1.0"))
	g.Expect(log.Runs).To(HaveLen(1))
	tool, _ := log.Runs[0]["tool"].(map[string]any)
	driver, _ := tool["driver"].(map[string]any)
	g.Expect(driver).To(HaveKeyWithValue("name", Not(BeEmpty())))
	rules, _ := driver["rules"].([]any)
	g.Expect(rules).To(HaveLen(len(Rules())))
	for _, one := range rules {
		rule, _ := one.(map[string]any)
		g.Expect(rule).To(HaveKeyWithValue("id", MatchRegexp(`^HL\d{3}$`)))
		g.Expect(rule).To(HaveKeyWithValue("shortDescription", HaveKeyWithValue("text", Not(BeEmpty()))))
		g.Expect(rule).To(HaveKeyWithValue("defaultConfiguration", HaveKeyWithValue("level", BeElementOf("error", "warning", "note"))))
	}
	results, _ := log.Runs[0]["results"].([]any)
	g.Expect(results).To(HaveLen(len(report.Findings)))
	for i, one := range results {
		result, _ := one.(map[string]any)
		g.Expect(result).To(HaveKeyWithValue("ruleId", "HL001"))
		g.Expect(result).To(HaveKeyWithValue("ruleIndex", BeEquivalentTo(0)))
		g.Expect(result).To(HaveKeyWithValue("level", "error"))
		g.Expect(result).To(HaveKeyWithValue("message", HaveKeyWithValue("text", ContainSubstring(report.Findings[i].Message))))
		g.Expect(result).To(HaveKeyWithValue("locations", ConsistOf(HaveKeyWithValue("physicalLocation", SatisfyAll(
			HaveKeyWithValue("artifactLocation", HaveKeyWithValue("uri", "HL001.yaml")),
			HaveKeyWithValue("region", HaveKeyWithValue("startLine", BeEquivalentTo(report.Findings[i].Line))),
		)))))
		g.Expect(result).To(HaveKeyWithValue("partialFingerprints", Not(BeEmpty())))
	}
}

func TestSARIFOfNothing(t *testing.T) {
	g := NewWithT(t)
	report, err := Lint(&manifest.Set{}, Settings{})
	g.Expect(err).NotTo(HaveOccurred())
	var out bytes.Buffer
	g.Expect(report.SARIF(&out)).To(Succeed())
	g.Expect(out.String()).To(ContainSubstring(`"results": []`)) // null is no valid list of results
}

func TestURI(t *testing.T) {
	for file, want := range map[string]string{
		"a/b.yaml": "a/b.yaml", "/a/b.yaml": "file:///a/b.yaml", "with space/a%b.yaml": "with%20space/a%25b.yaml", "<stdin>": "%3Cstdin%3E",
	} {
		NewWithT(t).Expect(Finding{File: file}.uri()).To(Equal(want))
	}
}

// TestFingerprints checks that a finding stays the same when lines are added above it.
func TestFingerprints(t *testing.T) {
	g := NewWithT(t)
	one := Finding{Rule: leftOut, File: "a.yaml", Object: "Machine a", Field: "metadata", Line: 3, Message: "b"}
	moved, other := one, one
	moved.Line, other.Field = 7, "spec"
	g.Expect(moved.result().PartialFingerprints).To(Equal(one.result().PartialFingerprints))
	g.Expect(other.result().PartialFingerprints).NotTo(Equal(one.result().PartialFingerprints))
}
