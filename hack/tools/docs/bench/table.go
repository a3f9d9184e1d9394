// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// heading returns the names of the columns of cells.
func heading() []string {
	return []string{"Benchmark", "Metric", "Median", "Quartiles", "Target"}
}

func cells(r *row, c *contents) []string {
	goal := ""
	if t, is := c.target(r); is {
		goal = "≤ " + number(t.AtMost)
		if r.quantile(0.5) > t.AtMost {
			goal += ", missed"
		}
	}
	quartiles := ""
	if r.n() > 1 {
		quartiles = number(r.quantile(0.25)) + "–" + number(r.quantile(0.75))
	}
	return []string{r.benchmark, r.metric, number(r.quantile(0.5)), quartiles, goal}
}

// number rounds to three digits, more than two runs have in common.
func number(value float64) string {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(value, 'g', 3, 64), 64)
	if err != nil {
		return strconv.FormatFloat(value, 'g', -1, 64)
	}
	text := strconv.FormatFloat(rounded, 'f', -1, 64)
	whole, fraction, has := strings.Cut(text, ".")
	for at := len(whole) - 3; at > 0 && whole[at-1] != '-'; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if has {
		return whole + "." + fraction
	}
	return whole
}

// printTable prints every metric of every benchmark.
func printTable(out io.Writer, rows []*row, c *contents) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(cells []string) {
		fmt.Fprintln(table, strings.TrimRight(strings.Join(cells, "\t"), "\t")) // Flush returns the error
	}
	line(heading())
	for _, r := range rows {
		line(cells(r, c))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	return nil
}

// markdown returns a table of these rows, without empty columns. Only the first row of a benchmark has its name.
func markdown(rows []*row, c *contents) string {
	table := [][]string{heading(), {"---", "---", "--:", "--:", "---"}}
	filled := make([]bool, len(heading()))
	for at, r := range rows {
		of := cells(r, c)
		if at > 0 && rows[at-1].benchmark == r.benchmark {
			of[0] = ""
		}
		for i := range of {
			filled[i] = filled[i] || of[i] != ""
			of[i] = strings.ReplaceAll(of[i], "|", `\|`)
		}
		table = append(table, of)
	}
	var text strings.Builder
	for _, line := range table {
		for i := range line {
			if filled[i] {
				text.WriteString("| " + line[i] + " ")
			}
		}
		text.WriteString("|\n")
	}
	return text.String()
}
