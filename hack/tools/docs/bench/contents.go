// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed contents.yaml
var contentsYAML []byte

// contents has the sections of the page, and the targets of the results.
type contents struct {
	Sections []section `json:"sections"`
	Targets  []target  `json:"targets"`
}

// section is a chart and a table, between markers of the section's name.
type section struct {
	Name string `json:"name"`
	// Alt is read out in place of the chart.
	Alt string `json:"alt"`
	// Axis is the text below the axis.
	Axis string `json:"axis"`
	// Benchmark is a function, without "Benchmark".
	Benchmark string `json:"benchmark"`
	// Chart has the metrics in the chart, Table the metrics that are only in the table.
	Chart []string `json:"chart"`
	Table []string `json:"table"`
	// Variables are the variables of make bench, in addition to COUNT, on which the section depends.
	Variables []string `json:"variables"`
}

// target is the maximum of a metric's median.
type target struct {
	Benchmark string  `json:"benchmark"`
	Metric    string  `json:"metric"`
	AtMost    float64 `json:"atMost"`
}

func loadContents() (*contents, error) { return parseContents(contentsYAML) }

func parseContents(text []byte) (*contents, error) {
	parsed := &contents{}
	if err := yaml.UnmarshalStrict(text, parsed); err != nil {
		return nil, fmt.Errorf("reading contents.yaml: %w", err)
	}
	return parsed, nil
}

// target returns the target of a row.
func (c *contents) target(r *row) (target, bool) {
	for _, t := range c.Targets {
		if t.Benchmark == r.benchmark && t.Metric == r.metric {
			return t, true
		}
	}
	return target{}, false
}

// rows returns the rows of a section with one of these metrics.
func (s *section) rows(all []*row, metrics []string) (of []*row) {
	for _, r := range all {
		if strings.HasPrefix(r.benchmark+"/", s.Benchmark+"/") && slices.Contains(metrics, r.metric) {
			of = append(of, r)
		}
	}
	return of
}
