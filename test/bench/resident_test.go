// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// residents are how many Machines there are, each with a Node.
const residents = 500

// BenchmarkResidentMemory reports how much memory of the leader is resident once it has started and looked at everything: with
// many Machines, each with its Node, as a multiple of none (metric ×idle), both in MiB, and what each of them adds.
func BenchmarkResidentMemory(b *testing.B) {
	s := newStage(b, stage.Options{WithoutProgram: true, WithoutWebhooks: true, Args: []string{"--no-execute-rate=0"}})
	idle := memoryOfLeader(b, s, 0)
	createResidents(b, s)
	memoryOfLeader(b, s, residents) // the one that writes what they inherit
	loaded := 0.0
	for b.Loop() {
		loaded += memoryOfLeader(b, s, residents)
	}
	loaded /= float64(b.N)
	b.ReportMetric(loaded/idle, "×idle")
	b.ReportMetric(idle/(1<<20), "MiB-idle")
	b.ReportMetric(loaded/(1<<20), "MiB")
	b.ReportMetric((loaded-idle)/residents/(1<<10), "KiB/Machine")
}

// memoryOfLeader starts the program, waits until it leads, has looked at that many Machines and Nodes and has nothing left to do,
// and stops it.
func memoryOfLeader(b *testing.B, s *stage.Stage, objects float64) (resident float64) {
	b.Helper()
	if err := s.StartHeirloom(b.Context()); err != nil {
		b.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(b.Context(), 100*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
		now, err := samples(s.MetricsURL)
		resident = now["process_resident_memory_bytes"]
		done := now["leader_election_master_status"] == 1 && now["workqueue_depth"] == 0 && now["controller_runtime_active_workers"] == 0 &&
			now["controller_runtime_reconcile_total machine"] >= objects && now["controller_runtime_reconcile_total node"] >= objects
		return done, err
	})
	if err != nil {
		b.Fatalf("waiting for the leader to be done: %v", err)
	}
	if err := s.StopHeirloom(); err != nil {
		b.Fatal(err)
	}
	return resident
}

// samples returns the sum of each metric, and of those that have a label "controller" also the sum for each.
func samples(url string) (map[string]float64, error) {
	response, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			sums[name] += value
			for _, label := range metric.GetLabel() {
				if label.GetName() == "controller" {
					sums[name+" "+label.GetValue()] += value
				}
			}
		}
	}
	return sums, nil
}

// createResidents creates Machines of one MachineSet that declares what a world does, and their Nodes.
func createResidents(b *testing.B, s *stage.Stage) {
	b.Helper()
	cluster := stage.Cluster(stage.Home, stage.Home)
	md := stage.MachineDeployment(cluster, "bench", declared())
	create := func(ctx context.Context, objects ...client.Object) error {
		for _, object := range objects {
			if err := s.Client.Create(ctx, object); err != nil {
				return err
			}
		}
		return nil
	}
	err := create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stage.Home}}, cluster, md)
	if err != nil {
		b.Fatal(err)
	}
	set := stage.MachineSet(md, "bench")
	if err := create(b.Context(), set); err != nil {
		b.Fatal(err)
	}
	creating, ctx := errgroup.WithContext(b.Context())
	creating.SetLimit(10)
	for n := range residents {
		creating.Go(func() error {
			name := fmt.Sprintf("bench-%d", n)
			return create(ctx, stage.Machine(set, name), stage.Node(name))
		})
	}
	if err := creating.Wait(); err != nil {
		b.Fatal(err)
	}
}
