// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// section returns the text of one version in the changelog, such as 1.2.3 or Unreleased, and the date of the version.
func section(changelog, version string) (text, date string, found bool) {
	heading := regexp.MustCompile(`(?m)^## \[` + regexp.QuoteMeta(version) + `\](?: - (\d{4}-\d{2}-\d{2}))?$`)
	at := heading.FindStringSubmatchIndex(changelog)
	if at == nil {
		return "", "", false
	}
	if at[2] >= 0 {
		date = changelog[at[2]:at[3]]
	}
	text = changelog[at[1]:]
	// The section ends at the next section, or at the addresses of links.
	if end := regexp.MustCompile(`(?m)^(## |\[[^\]]+\]: )`).FindStringIndex(text); end != nil {
		text = text[:end[0]]
	}
	return strings.TrimSpace(text), date, true
}

// notes returns the text of a release. A version without a section gets the section Unreleased, for a trial.
func notes(changelog, version string) (string, error) {
	text, _, found := section(changelog, strings.TrimPrefix(version, "v"))
	if !found {
		if text, _, found = section(changelog, "Unreleased"); !found {
			return "", fmt.Errorf("the changelog has no section %s and none Unreleased", version)
		}
		text = "This is a trial: the changelog has no section " + version + ", so what follows is unreleased.\n\n" + text
	}
	if text == "" {
		return "", errors.New("the changelog says nothing of " + version)
	}
	return unwrap(text) + fmt.Sprintf("\n\n[How to check these files](%s/blob/%s/docs/release.md#verify)\n", repository, version), nil
}

// unwrap puts each item on one line: GitHub shows the line breaks in the text of a release.
func unwrap(text string) string {
	return regexp.MustCompile(`([^\n])\n +([^ *-])`).ReplaceAllString(text, "$1 $2")
}

func (r *release) writeNotes() error {
	changelog, err := os.ReadFile(filepath.Join(r.source, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	text, err := notes(string(changelog), r.version)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "release-notes.md"), []byte(text), 0o644)
}
