// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// stayQuiet reports the work of the leader while nothing happens, within BENCH_QUIET: its reads and writes except for leases and watches,
// according to the API server's audit log, and its use of a core.
func (f *residents) stayQuiet(b *testing.B) {
	quiet := 2 * time.Second
	if text := os.Getenv("BENCH_QUIET"); text != "" {
		var err error
		if quiet, err = time.ParseDuration(text); err != nil {
			b.Fatalf("BENCH_QUIET: %v", err)
		}
	}
	f.restart(b, f.machines)
	var reads, writes, used, took float64
	for b.Loop() {
		_, _, from := f.requests(b, 0)
		start, before := time.Now(), f.cpu(b)
		select {
		case <-time.After(quiet): // the duration of the measurement, not a wait for an event
		case <-b.Context().Done():
			b.Fatal(b.Context().Err())
		}
		used += f.cpu(b) - before
		took += time.Since(start).Seconds()
		r, w, _ := f.requests(b, from)
		reads, writes = reads+r, writes+w
	}
	b.ReportMetric(writes/took*60, "writes/min")
	b.ReportMetric(reads/took*60, "reads/min")
	b.ReportMetric(used/took*100, "%-of-a-core")
	b.ReportMetric(0, "ns/op")
}

// requests counts the requests of the program from an offset in the audit log, and returns the log's new length.
func (f *residents) requests(b *testing.B, from int64) (reads, writes float64, end int64) {
	b.Helper()
	end, err := controlplane.ReadAudit(f.auditLog, from, func(event *auditv1.Event) {
		if event.User.Username != stage.ServiceAccount || event.ObjectRef.Resource == "leases" {
			return
		}
		switch event.Verb {
		case "watch":
		case "get", "list":
			reads++
		default:
			writes++
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	return reads, writes, end
}
