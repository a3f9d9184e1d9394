// SPDX-License-Identifier: Apache-2.0

// Package scenes measures Heirloom beside Cluster API's released core manager: how long a change takes to reach every Node, what
// Machines cost that come and go, and how soon a Node that joins has what it inherits.
//
// Each benchmark measures the same in a world with Cluster API alone and in one with Heirloom beside it, one after the other, and
// what it would take a client that does nothing but the writes. Metrics are named step-variant-what; a ratio ends with what it is a
// multiple of. BENCH_SIZES says how many Machines there are.
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

// BenchmarkBesideClusterAPI has parts that can be run by themselves, as in -bench '/convergence'. All of them share their worlds.
func BenchmarkBesideClusterAPI(b *testing.B) {
	sizes := sizes(b)
	s := newScenes(b)
	b.Run("convergence", func(b *testing.B) { benchmarkConvergence(b, s, sizes) })
	b.Run("life", func(b *testing.B) { benchmarkLife(b, s, sizes) })
	b.Run("gate-on", func(b *testing.B) { benchmarkTyped(b, s, sizes) })
}

// sizes are the numbers of Machines that were asked for.
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

// tell says on stderr what is being done. The go command merges that with the results, and where a benchmark runs several times,
// its name stands on a line that has no end yet. With -v, every result has a whole line.
func tell(format string, args ...any) {
	if count := flag.Lookup("test.count"); count != nil && count.Value.String() != "1" && !testing.Verbose() {
		return
	}
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// results are metrics that become means over the iterations.
type results map[string]float64

func (r results) add(value float64, unit ...string) { r[strings.Join(unit, "-")] += value }

// report adds them to the benchmark's line. The time of an iteration, of which much is waiting, would mean nothing there.
func (r results) report(b *testing.B) {
	b.Helper()
	for unit, sum := range r {
		b.ReportMetric(sum/float64(b.N), unit)
	}
	b.ReportMetric(0, "ns/op")
}
