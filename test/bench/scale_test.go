// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/test/bench/samples"
	"github.com/heirloom-dev/heirloom/test/stage"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// BenchmarkResidentMemory reports the costs of a leader's start: the resident memory once it has evaluated every object, in MiB and as a
// multiple of the memory without Machines (metric ×idle), the memory of each Machine with its Node, the time until the leader is ready,
// and the time until it has evaluated every object. At the largest size up to a thousand Machines, the leader then runs for a while in
// which nothing happens. At the largest size, admission is compared with a program that has few Machines.
func BenchmarkResidentMemory(b *testing.B) {
	small := newResidents(b, stage.Options{})
	large := newResidents(b, stage.Options{})
	few := sizes(b, "BENCH_FEW", 2)[0]
	many := sizes(b, "BENCH_MACHINES", 4, 8)
	var idle float64
	b.Run("no Machines", func(b *testing.B) { idle = small.started(b, 0) })
	for _, machines := range many {
		// With the program running, its webhooks write the inherited entries: the loop would take longer.
		large.grow(b, machines)
		b.Run(fmt.Sprintf("machines=%d", machines), func(b *testing.B) {
			loaded := large.started(b, machines)
			if idle > 0 { // zero if -bench has left out the benchmark of an idle leader
				b.ReportMetric(loaded/idle, "×idle")
				b.ReportMetric((loaded-idle)/float64(machines)/(1<<10), "KiB/Machine")
			}
		})
		if machines == quietSize(many) {
			b.Run(fmt.Sprintf("quiet, machines=%d", machines), large.stayQuiet)
		}
	}
	small.grow(b, few)
	small.restart(b, few)
	b.Run(fmt.Sprintf("admission, machines=%d", many[len(many)-1]), func(b *testing.B) { large.admissionBeside(b, small, few) })
}

// quietSize returns the largest size up to a thousand, or the first size.
func quietSize(sizes []int) int {
	quiet := sizes[0]
	for _, size := range sizes {
		if size <= 1000 {
			quiet = max(quiet, size)
		}
	}
	return quiet
}

// started starts the leader several times. It reports and returns the mean of the resident memory.
func (f *residents) started(b *testing.B, machines int) float64 {
	b.Helper()
	var resident float64
	var ready, done time.Duration
	for b.Loop() {
		r, d, bytes := f.restart(b, machines)
		ready, done, resident = ready+r, done+d, resident+bytes
	}
	resident /= float64(b.N)
	b.ReportMetric(resident/(1<<20), "MiB")
	b.ReportMetric(ready.Seconds()/float64(b.N), "s-until-ready")
	b.ReportMetric(done.Seconds()/float64(b.N), "s-until-done")
	b.ReportMetric(0, "ns/op")
	return resident
}

// restart stops and starts the program, and waits until it leads, has evaluated this number of Machines and Nodes and has an empty queue.
// Then it measures the resident memory.
func (f *residents) restart(b *testing.B, machines int) (ready, done time.Duration, resident float64) {
	b.Helper()
	if err := f.StopHeirloom(); err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	if err := f.StartHeirloom(context.WithoutCancel(b.Context())); err != nil {
		b.Fatal(err)
	}
	ready = time.Since(start)
	objects := float64(machines)
	err := wait.PollUntilContextTimeout(b.Context(), 100*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
		now, err := samples.Of(b.Context(), f.MetricsURL)
		done := now["leader_election_master_status"] == 1 && now["workqueue_depth"] == 0 && now["controller_runtime_active_workers"] == 0 &&
			now["controller_runtime_reconcile_total machine"] >= objects && now["controller_runtime_reconcile_total node"] >= objects
		return done, err
	})
	if err != nil {
		b.Fatalf("waiting for the leader to be done: %v", err)
	}
	done = time.Since(start)
	now, err := samples.Of(b.Context(), f.MetricsURL)
	if err != nil {
		b.Fatal(err)
	}
	return ready, done, now["process_resident_memory_bytes"]
}

// admissionBeside reports how long the webhook takes for a new Machine (median), as a multiple of the time in another program with fewer
// Machines. The requests take turns.
func (f *residents) admissionBeside(b *testing.B, other *residents, few int) {
	review := func(f *residents) *caller {
		request := create("Machine", stage.Machine(f.set, "new"))
		body, err := json.Marshal(admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &request,
		})
		if err != nil {
			b.Fatal(err)
		}
		asks := newCaller(f.WebhookURL+webhooks.PathOf(owners.Machines), body)
		asks.expect(b, true)
		return asks
	}
	here, there := review(f), review(other)
	var many, less []time.Duration
	for b.Loop() {
		less = append(less, there.took(b))
		many = append(many, here.took(b))
	}
	b.ReportMetric(float64(median(many))/float64(median(less)), fmt.Sprintf("×machines=%d", few))
	b.ReportMetric(0, "ns/op")
}
