// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchfmt"
)

// results has the output of a run.
type results struct {
	// facts are the lines "key: value" before the first benchmark, such as the lines about the machine.
	facts map[string]string
	// rows are in the order of their first measurements.
	rows []*row
}

// row is one metric of one benchmark.
type row struct {
	// benchmark is the name as a person would write it, without "Benchmark" and the number of threads.
	benchmark, metric string
	sample            stats.Sample
}

func (r *row) n() int { return len(r.sample.Xs) }

// quantile returns a quantile by Hyndman and Fan's method 8, which suits small samples.
func (r *row) quantile(q float64) float64 { return r.sample.Quantile(q) }

func readFile(name string) (*results, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%w: make bench writes it", err)
	}
	defer file.Close()
	return read(file, name)
}

func read(from io.Reader, name string) (*results, error) {
	found := &results{facts: map[string]string{}}
	known := map[[3]string]*row{}
	reader := benchfmt.NewReader(from, name)
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, record
		case *benchfmt.Result:
			found.add(known, record)
		}
	}
	if err := reader.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(found.rows) == 0 {
		return nil, errors.New(name + " has no results of benchmarks")
	}
	return found, nil
}

func (r *results) add(known map[[3]string]*row, result *benchfmt.Result) {
	for _, config := range result.Config {
		if _, is := r.facts[config.Key]; !is {
			r.facts[config.Key] = string(config.Value)
		}
	}
	benchmark := displayed(result.Name)
	for _, value := range result.Values {
		metric, measured := value.Unit, value.Value
		if value.OrigUnit != "" { // as it was printed: the library turns "ns/op" into "sec/op"
			metric, measured = value.OrigUnit, value.OrigValue
		}
		key := [3]string{result.GetConfig("pkg"), benchmark, metric}
		if known[key] == nil {
			known[key] = &row{benchmark: benchmark, metric: metric}
			r.rows = append(r.rows, known[key])
		}
		known[key].sample.Xs = append(known[key].sample.Xs, measured)
	}
}

// displayed returns a benchmark's name with the spaces that it had in the code.
func displayed(name benchfmt.Name) string {
	base, parts := name.Parts()
	var text strings.Builder
	text.Write(base)
	for _, part := range parts {
		if part[0] != '-' {
			text.Write(part)
		}
	}
	return strings.ReplaceAll(text.String(), "_", " ")
}
