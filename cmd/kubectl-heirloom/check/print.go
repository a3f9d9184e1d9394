// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"io"
	"strings"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// Write writes the report for people: a line for each check, with what it found and what to do below it.
func (r *Report) Write(w io.Writer, p cli.Painter) error {
	var b strings.Builder
	for _, one := range r.Checks {
		// Padding is outside of the colour, so that lines with and without it are aligned alike.
		status := p.Paint(style(one.Status), string(one.Status)) + strings.Repeat(" ", len(Skipped)-len(one.Status))
		fmt.Fprintf(&b, "%s   %-*s   %s\n", status, widest(), one.Name, one.Message)
		indent := strings.Repeat(" ", len(Skipped)+widest()+6)
		for _, detail := range one.Details {
			fmt.Fprintf(&b, "%s- %s\n", indent, detail)
		}
		if one.Next != "" {
			fmt.Fprintf(&b, "%s%s %s\n", indent, p.Paint(cli.Bold, "Next:"), one.Next)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", r.summary())
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	return nil
}

// summary counts the statuses.
func (r *Report) summary() string {
	var counts []string
	for _, status := range []Status{OK, Warning, Failed, Unknown, Skipped} {
		if count := r.count(status); count > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", count, status))
		}
	}
	return strings.Join(counts, ", ")
}

func widest() int {
	width := 0
	for _, check := range Checks() {
		width = max(width, len(check.Name))
	}
	return width
}

func style(status Status) cli.Style {
	switch status {
	case OK:
		return cli.Good
	case Warning:
		return cli.Warn
	case Failed:
		return cli.Bad
	default:
		return cli.Dim
	}
}
