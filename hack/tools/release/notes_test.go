// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

const changelog = `# Changelog

## [Unreleased]

### Added

- Something new.

## [1.2.3] - 2026-11-22

### Added

- One thing, which takes
  more than one line
  to say.
- Another:
  - with a part

### Fixed

- A fault.

## [1.2.2] - 2026-11-01

- The first.

[Unreleased]: https://example.com
`

func TestNotes(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "### Added\n\n- One thing, which takes more than one line to say.\n- Another:\n  - with a part\n\n### Fixed\n\n- A fault.",
		"v1.2.2": "- The first.",
		"v1.2":   "This is a trial: the changelog has no section v1.2, so what follows is unreleased.\n\n### Added\n\n- Something new.",
	} {
		t.Run(version, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			text, err := notes(changelog, version)
			Expect(err).NotTo(HaveOccurred())
			Expect(text).To(And(HavePrefix(want+"\n\n[How to check"), HaveSuffix("/blob/"+version+"/docs/release.md#verify)\n")))
		})
	}
	_, err := notes("# Changelog\n", "v1.2.3")
	NewWithT(t).Expect(err).To(MatchError("the changelog has no section v1.2.3 and none Unreleased"))
}

// The changelog of these sources makes release notes.
func TestNotesOfTheseSources(t *testing.T) {
	Expect := NewWithT(t).Expect
	out := t.TempDir()
	Expect(run([]string{"notes", "--out", out, "--version", "v99.0.0"})).To(Succeed())
	text, err := os.ReadFile(filepath.Join(out, "release-notes.md"))
	Expect(err).NotTo(HaveOccurred())
	Expect(string(text)).To(And(HavePrefix("This is a trial"), HaveSuffix("/blob/v99.0.0/docs/release.md#verify)\n")))
}

func TestCheck(t *testing.T) {
	const (
		chart   = "version: 1.2.3\nappVersion: v1.2.3\n"
		series  = "releaseSeries:\n- {major: 1, minor: 2}\n"
		section = "## [Unreleased]\n\n## [1.2.3] - 2026-11-22\n\n- A change.\n"
	)
	for name, test := range map[string]struct {
		version, chart, series, changelog string
		want                              []string
	}{
		"ready":              {"v1.2.3", chart, series, section, nil},
		"no version":         {"1.2.3", chart, series, section, []string{"1.2.3 is not a version"}},
		"half a version":     {"v1.2", chart, series, section, []string{"v1.2 is not a version"}},
		"another version":    {"v1.2.4", chart, series, section, []string{"Chart.yaml has version 1.2.3", "no section [1.2.4]"}},
		"another appVersion": {"v1.2.3", "version: 1.2.3\nappVersion: v1.2.2\n", series, section, []string{"appVersion v1.2.2"}},
		"a new series":       {"v1.2.3", chart, "releaseSeries:\n- {major: 1, minor: 1}\n", section, []string{"no series v1.2"}},
		"no date":            {"v1.2.3", chart, series, "## [1.2.3]\n\n- A change.\n", []string{"no section [1.2.3] with a date"}},
		"nothing said":       {"v1.2.3", chart, series, "## [1.2.3] - 2026-11-22\n", []string{"with a text"}},
		"something left":     {"v1.2.3", chart, series, "## [Unreleased]\n\n- More.\n\n" + section[len("## [Unreleased]\n\n"):], []string{"still has"}},
	} {
		t.Run(name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			source := t.TempDir()
			for file, content := range map[string]string{
				"deploy/chart/heirloom/Chart.yaml": test.chart, "deploy/clusterctl/metadata.yaml": test.series, "CHANGELOG.md": test.changelog,
			} {
				Expect(os.MkdirAll(filepath.Join(source, filepath.Dir(file)), 0o755)).To(Succeed())
				Expect(os.WriteFile(filepath.Join(source, file), []byte(content), 0o600)).To(Succeed())
			}
			err := run([]string{"check", "--source", source, "--version", test.version})
			if test.want == nil {
				Expect(err).NotTo(HaveOccurred())
			}
			for _, want := range test.want {
				Expect(err).To(MatchError(ContainSubstring(want)))
			}
		})
	}
}
