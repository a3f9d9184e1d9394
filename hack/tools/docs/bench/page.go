// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// updatePage writes the sections that have results, each with the facts of this run. Other sections stay as they are, so a run of some
// benchmarks updates only their sections.
func updatePage(name string, found *results, c *contents, atLeast int, out io.Writer) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	page := string(text)
	for i := range c.Sections {
		s := &c.Sections[i]
		shown := s.rows(found.rows, slices.Concat(s.Chart, s.Table))
		if len(shown) == 0 {
			continue
		}
		if fewest := fewest(shown); fewest < atLeast {
			fmt.Fprintf(out, "%s: %d results of a benchmark, and the page needs %d: left as it is\n", s.Name, fewest, atLeast)
			continue
		}
		svg, err := chart(s, s.rows(found.rows, s.Chart), c)
		if err != nil {
			return fmt.Errorf("drawing %s: %w", s.Name, err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(name), s.Name+".svg"), svg, 0o644); err != nil {
			return fmt.Errorf("writing a chart: %w", err)
		}
		if page, err = replace(page, s.Name, block(s, shown, found.facts, c)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := os.WriteFile(name, []byte(page), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

func fewest(rows []*row) int {
	return slices.MinFunc(rows, func(a, b *row) int { return a.n() - b.n() }).n()
}

// block returns the text between a section's markers.
func block(s *section, shown []*row, facts map[string]string, c *contents) string {
	return fmt.Sprintf("![%s](%s.svg)\n\n%s\n%s\n", s.Alt, s.Name, markdown(shown, c), origin(s, facts))
}

// origin returns the command that repeats the measurements, and the facts of this run.
func origin(s *section, facts map[string]string) string {
	command := "make bench RUN='" + s.Benchmark + "'"
	for _, variable := range append([]string{"COUNT"}, s.Variables...) {
		if value := facts[strings.ToLower(variable)]; value != "" {
			command += " " + variable + "='" + value + "'"
		}
	}
	var where []string
	for _, fact := range []struct{ key, format string }{
		{"date", "%s"}, {"commit", "commit %s"}, {"cores", "%s cores"}, {"cpu", "%s"}, {"memory", "%s of memory"}, {"go", "Go %s"},
		{"kubernetes", "Kubernetes %s"}, {"cluster-api", "Cluster API %s"},
	} {
		if value := facts[fact.key]; value != "" {
			where = append(where, fmt.Sprintf(fact.format, value))
		}
	}
	return fmt.Sprintf("`%s`: %s.", command, strings.Join(where, ", "))
}

// replace puts text between the markers of a section.
func replace(page, name, text string) (string, error) {
	begin, end := "<!-- bench:"+name+" -->\n", "<!-- /bench:"+name+" -->\n"
	before, rest, has := strings.Cut(page, begin)
	_, after, ends := strings.Cut(rest, end)
	if !has || !ends {
		return "", errors.New("no lines " + strings.TrimSpace(begin) + " and " + strings.TrimSpace(end))
	}
	return before + begin + "\n" + text + "\n" + end + after, nil
}
