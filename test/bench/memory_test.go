// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/owners"
)

const machines = 2000

// BenchmarkCache reports how much heap a cached Machine takes as Heirloom keeps it, as a fraction of the whole Machine (metric ×full).
func BenchmarkCache(b *testing.B) {
	w := newWorld()
	for i := range 8 {
		w.inherited.Status.Conditions = append(w.inherited.Status.Conditions, metav1.Condition{
			Type: fmt.Sprintf("Condition%d", i), Status: metav1.ConditionTrue, Reason: "AsItShouldBe", LastTransitionTime: metav1.Now(),
			Message: "A message of a usual length about what is so, and since when, and what would have to change.",
		})
	}
	encoded := encode(w.inherited)
	var trimmed, full uint64
	for b.Loop() {
		trimmed += heapOf(func() any { object, _ := owners.Transform(convertRaw[clusterv1.Machine](encoded)); return object })
		full += heapOf(func() any { return convertRaw[clusterv1.Machine](encoded) })
	}
	b.ReportMetric(float64(trimmed)/float64(full), "×full")
	b.ReportMetric(float64(trimmed)/float64(b.N)/machines, "B/Machine")
}

// heapOf returns the heap, in bytes, that many objects hold.
func heapOf(build func() any) uint64 {
	var before, after runtime.MemStats
	settle(&before)
	kept := make([]any, 0, machines)
	for range machines {
		kept = append(kept, build())
	}
	settle(&after)
	runtime.KeepAlive(kept)
	return after.HeapAlloc - before.HeapAlloc
}

func settle(stats *runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(stats)
}
