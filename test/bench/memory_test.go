// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/heirloom-dev/heirloom/test/bench/samples"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// BenchmarkMemory reports the costs of a leader's start, by the number of Machines (BENCH_MACHINES): the resident memory once it has
// looked at every Machine and Node, in MiB and as a multiple of the memory without Machines (metric ×idle), the time until it is ready,
// and the time until it has looked at every object.
func BenchmarkMemory(b *testing.B) {
	f := newFleet(b, stage.Options{})
	sizes := os.Getenv("BENCH_MACHINES")
	if sizes == "" {
		sizes = "4 8"
	}
	var idle float64
	b.Run("no Machines", func(b *testing.B) { idle = f.started(b) })
	for size := range strings.FieldsSeq(sizes) {
		machines, err := strconv.Atoi(size)
		if err != nil {
			b.Fatalf("BENCH_MACHINES: %v", err)
		}
		// With the program running, its webhooks write the inherited entries: the loop would take longer.
		f.grow(b, machines)
		b.Run("machines="+size, func(b *testing.B) {
			loaded := f.started(b)
			if idle > 0 { // zero if -bench has left out the benchmark of an idle leader
				b.ReportMetric(loaded/idle, "×idle")
			}
		})
	}
}

// started starts the leader several times. It reports means, and returns the resident memory.
func (f *fleet) started(b *testing.B) float64 {
	b.Helper()
	var resident float64
	var ready, done time.Duration
	for b.Loop() {
		r, d := f.restart(b)
		ready, done, resident = ready+r, done+d, resident+measured(b, f.MetricsURL)["process_resident_memory_bytes"]
	}
	resident /= float64(b.N)
	b.ReportMetric(resident/(1<<20), "MiB")
	b.ReportMetric(ready.Seconds()/float64(b.N), "s-until-ready")
	b.ReportMetric(done.Seconds()/float64(b.N), "s-until-done")
	b.ReportMetric(0, "ns/op")
	return resident
}

// restart stops and starts the program, and waits until it leads, has looked at every Machine and Node and has an empty queue.
func (f *fleet) restart(b *testing.B) (ready, done time.Duration) {
	b.Helper()
	if err := f.StopHeirloom(); err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	if err := f.StartHeirloom(context.WithoutCancel(b.Context())); err != nil {
		b.Fatal(err)
	}
	ready = time.Since(start)
	objects := float64(f.machines)
	err := wait.PollUntilContextTimeout(b.Context(), 100*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
		now, err := samples.Of(b.Context(), f.MetricsURL)
		done := now["leader_election_master_status"] == 1 && now["workqueue_depth"] == 0 && now["controller_runtime_active_workers"] == 0 &&
			now["controller_runtime_reconcile_total machine"] >= objects && now["controller_runtime_reconcile_total node"] >= objects
		return done, err
	})
	if err != nil {
		b.Fatalf("waiting for the leader to be done: %v", err)
	}
	return ready, time.Since(start)
}
