// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// BenchmarkUpdate reports what an update of a Machine costs the client that writes it, through a real API server, as a multiple of the
// same update of a Machine that is left alone (metric ×ignored). About a value of somebody else's, API servers do not ask. One that
// takes away what the Machine inherits is decided twice, the second time by owners that are read from the API server.
func BenchmarkUpdate(b *testing.B) {
	s := newStage(b, stage.Options{WithoutLoop: true}) // its loop rests
	machines := newMachines(b, s)
	for _, tc := range []struct{ name, labels string }{
		{"a value of somebody else's", `{"touched":"%d"}`},
		{"nothing to do", `{"touched":"%[1]d","bench.x-k8s.io/touched":"%[1]d"}`}, // API servers ask about every change in this domain
		{"an inherited label taken away", `{"touched":"%d","team":null}`},
	} {
		b.Run(tc.name, func(b *testing.B) {
			var subject, baseline time.Duration
			number := 0
			for b.Loop() {
				number++
				patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":`+tc.labels+`}}`, number))
				write := func(name string) time.Duration {
					return timed(b, func(ctx context.Context) error { return s.Client.Patch(ctx, machines[name], patch) })
				}
				baseline += write("ignored")
				subject += write("inherited")
			}
			if machines["inherited"].Labels["team"] != "ml" || machines["ignored"].Labels["touched"] != fmt.Sprint(number) {
				b.Fatalf("unexpected labels: %v and %v", machines["inherited"].Labels, machines["ignored"].Labels)
			}
			b.ReportMetric(float64(subject)/float64(baseline), "×ignored")
		})
	}
}

// newMachines creates two Machines of one MachineSet: one that inherits from it, and one that is left alone.
func newMachines(b *testing.B, s *stage.Stage) map[string]*clusterv1.Machine {
	b.Helper()
	cluster := stage.Cluster("bench", "bench")
	md := stage.MachineDeployment(cluster, "bench", stage.Declared{Labels: map[string]string{"team": "ml"}})
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bench"}}, cluster, md}
	for _, object := range objects {
		if err := s.Client.Create(b.Context(), object); err != nil {
			b.Fatal(err)
		}
	}
	set := stage.MachineSet(md, "bench")
	if err := s.Client.Create(b.Context(), set); err != nil {
		b.Fatal(err)
	}
	machines := map[string]*clusterv1.Machine{}
	for _, name := range []string{"inherited", "ignored"} {
		machines[name] = stage.Machine(set, name)
		if name == "ignored" {
			machines[name].Labels[inherit.IgnoreLabel] = ""
		}
		if err := s.Client.Create(b.Context(), machines[name]); err != nil {
			b.Fatal(err)
		}
	}
	return machines
}
