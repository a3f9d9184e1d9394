// SPDX-License-Identifier: Apache-2.0

// Package scenes compares Heirloom and Cluster API's released core manager with the manager alone: the time until a change reaches every
// Node, the cost of Machines that are created and deleted, and the time until a Node that joins has its inherited entries.
//
// Each benchmark measures the same steps in a world with Cluster API alone and in a world with Cluster API and Heirloom, one world after
// the other. Metrics are named step-variant-unit; the name of a ratio ends with its baseline. BENCH_SIZES has the numbers of Machines.
package scenes

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkBesideClusterAPI has parts that can run alone, for example with -bench '/convergence'. All parts share their worlds.
func BenchmarkBesideClusterAPI(b *testing.B) {
	sizes := sizes(b)
	s := newScenes(b)
	b.Run("convergence", func(b *testing.B) { benchmarkConvergence(b, s, sizes) })
	b.Run("life", func(b *testing.B) { benchmarkLife(b, s, sizes) })
	b.Run("gate-on", func(b *testing.B) { benchmarkTyped(b, s, sizes) })
}

// sizes returns the requested numbers of Machines.
func sizes(b *testing.B) []int {
	b.Helper()
	asked := os.Getenv("BENCH_SIZES")
	if asked == "" {
		asked = "50"
	}
	var sizes []int
	for field := range strings.FieldsSeq(asked) {
		size, err := strconv.Atoi(field)
		if err != nil || size < 1 {
			b.Fatalf("BENCH_SIZES is a list of numbers of Machines, such as \"50 200\"; it has %q", field)
		}
		sizes = append(sizes, size)
	}
	return sizes
}

// tell prints the current action to stderr. The go command merges stderr with the results, and where a benchmark runs several times, its
// name is printed without the end of the line. With -v, every result has a whole line.
func tell(format string, args ...any) {
	if count := flag.Lookup("test.count"); count != nil && count.Value.String() != "1" && !testing.Verbose() {
		return
	}
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// results are metrics that become means over the iterations.
type results map[string]float64

func (r results) add(value float64, unit ...string) { r[strings.Join(unit, "-")] += value }

// report adds the results to the benchmark's line, without the time of an iteration, which is mostly waiting.
func (r results) report(b *testing.B) {
	b.Helper()
	for unit, sum := range r {
		b.ReportMetric(sum/float64(b.N), unit)
	}
	b.ReportMetric(0, "ns/op")
}
