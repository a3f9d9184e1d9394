// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// stayQuiet reports what the leader does while nothing happens, within BENCH_QUIET: writes and reads but for leases and watches, by
// the API server's audit log, and how much of a core it uses.
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
		start, from, before := time.Now(), sizeOf(b, f.auditLog), f.cpu(b)
		select {
		case <-time.After(quiet): // not a wait for something: this is what is measured
		case <-b.Context().Done():
			b.Fatal(b.Context().Err())
		}
		used += f.cpu(b) - before
		took += time.Since(start).Seconds()
		r, w := f.requests(b, from)
		reads, writes = reads+r, writes+w
	}
	b.ReportMetric(writes/took*60, "writes/min")
	b.ReportMetric(reads/took*60, "reads/min")
	b.ReportMetric(used/took*100, "%-of-a-core")
	b.ReportMetric(0, "ns/op")
}

// sizeOf returns how long a log is.
func sizeOf(b *testing.B, log string) int64 {
	b.Helper()
	info, err := os.Stat(log)
	if err != nil {
		b.Fatal(err)
	}
	return info.Size()
}

// readFrom returns what was added to a log since it was that long.
func readFrom(b *testing.B, log string, from int64) []byte {
	b.Helper()
	file, err := os.Open(log)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		b.Fatal(err)
	}
	added, err := io.ReadAll(file)
	if err != nil {
		b.Fatal(err)
	}
	return added
}

// requests counts what the program has asked the API server since the audit log was that long.
func (f *residents) requests(b *testing.B, from int64) (reads, writes float64) {
	b.Helper()
	content := readFrom(b, f.auditLog, from)
	for line := range bytes.Lines(content[:bytes.LastIndexByte(content, '\n')+1]) {
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			b.Fatal(err)
		}
		if event.User.Username != stage.ServiceAccount || event.ObjectRef != nil && event.ObjectRef.Resource == "leases" {
			continue
		}
		switch event.Verb {
		case "watch":
		case "get", "list":
			reads++
		default:
			writes++
		}
	}
	return reads, writes
}
